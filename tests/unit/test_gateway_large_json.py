"""Requests that are small to send and long to read."""

import time
from typing import Any

import pytest

from gateway.decoding import MOST_ENTRIES, decode
from gateway.json_text import MAX_DEPTH, canonical
from gateway.openai import schema
from protos.hugginggpt.v1.types_pb2 import RunSpec
from services.runtime.errors import InvalidRequest

TOO_MANY = MOST_ENTRIES + 1


@pytest.mark.parametrize(
    "content",
    [
        {"history": [{}] * TOO_MANY},
        {"history": [{"attachments": [{"text": ""}] * 500}] * 500},
        {"inputs": [{"json": 1}] * TOO_MANY},
        {"metadata": {str(number): "" for number in range(TOO_MANY)}},
        {"plan": [{"task": "x"}] * TOO_MANY},
        {"plan": [{"task": "x", "arguments": {"a": [""] * TOO_MANY}}]},
    ],
    ids=["turns", "attachments", "inputs", "metadata", "tasks", "arguments"],
)
def test_a_message_of_very_many_parts_is_refused_soon(content: dict[str, Any]) -> None:
    began = time.process_time()
    with pytest.raises(InvalidRequest) as refused:
        decode(RunSpec, {"request": "x", **content})
    assert refused.value.reason == "TOO_LARGE"
    assert time.process_time() - began < 3


def test_each_message_has_a_count_of_its_own() -> None:
    for _ in range(3):
        assert len(decode(RunSpec, {"history": [{}] * (MOST_ENTRIES // 2)}).history) == MOST_ENTRIES // 2


@pytest.mark.parametrize("wide", [[[]] * 100_000, [{"a": '"\\['}] * 100_000, "[" * 1_000_000, [[{}]] * 50_000])
def test_wide_is_not_deep(wide: Any) -> None:
    began = time.process_time()
    assert canonical(wide, "x")
    assert time.process_time() - began < 2


@pytest.mark.parametrize(("depth", "taken"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
@pytest.mark.parametrize("turn", [lambda inner: [inner, "]"], lambda inner: {"[": inner}])
def test_deep_is_refused(depth: int, taken: bool, turn: Any) -> None:
    content: Any = 1
    for _ in range(depth):
        content = turn(content)
    if taken:
        assert canonical(content, "x")
        return
    with pytest.raises(InvalidRequest, match="nested"):
        canonical(content, "x")


def test_a_schema_whose_choices_double_is_not_followed_to_the_end() -> None:
    choices = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    intricate = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/a0"},
        "$defs": {**choices, "a40": {"type": "null"}},
    }
    schema.check(intricate, "x")
    began = time.process_time()
    assert not schema.holds(intricate, intricate, {"a": 1})
    assert schema.holds(intricate, intricate, {"a": None})
    assert time.process_time() - began < 3
