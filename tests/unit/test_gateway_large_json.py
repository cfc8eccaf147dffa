"""Limits on JSON that is cheap to send and expensive to parse."""

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.json_decoder import MAX_ENTRIES, decode
from gateway.json_text import MAX_CONTAINERS, MAX_DEPTH, canonical, loads
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import json_schema
from services.common.errors import InvalidRequest
from tests.bench.parsing import LARGE_MESSAGES, WIDE_JSON, doubling_schema


@pytest.mark.parametrize("fields", LARGE_MESSAGES.values(), ids=LARGE_MESSAGES)
@pytest.mark.timeout(30)
def test_message_with_too_many_entries_is_rejected(fields: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        decode(RunSpec, {"request": "x", **fields})
    assert raised.value.reason == "TOO_LARGE"


def test_entries_are_counted_per_message() -> None:
    for _ in range(3):
        assert len(decode(RunSpec, {"history": [{}] * (MAX_ENTRIES // 2)}).history) == MAX_ENTRIES // 2


@pytest.mark.parametrize("wide", WIDE_JSON.values(), ids=WIDE_JSON)
@pytest.mark.timeout(30)
def test_wide_json_is_not_deep(wide: Any) -> None:
    assert canonical(wide, "x")


def test_json_with_too_many_lists_is_rejected() -> None:
    with pytest.raises(InvalidRequest) as raised:
        loads(b"[" + b"[]," * MAX_CONTAINERS + b"[]]")
    assert raised.value.reason == "TOO_LARGE"


@pytest.mark.parametrize(("depth", "taken"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
@pytest.mark.parametrize("turn", [lambda inner: [inner, "]"], lambda inner: {"[": inner}])
def test_deep_json_is_rejected(depth: int, taken: bool, turn: Any) -> None:
    content: Any = 1
    for _ in range(depth):
        content = turn(content)
    if taken:
        assert canonical(content, "x")
        return
    with pytest.raises(InvalidRequest, match="nested"):
        canonical(content, "x")


@pytest.mark.timeout(30)
def test_schema_with_exponential_choices_is_bounded() -> None:
    doubling = doubling_schema()
    json_schema.check(doubling, "x")
    assert json_schema.find_problem(doubling, '{"a": 1}')
    assert not json_schema.find_problem(doubling, '{"a": null}')
