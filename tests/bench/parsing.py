"""CPU time of parsers on adversarial inputs, and of a planner's prompt with 500 tasks."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gateway.json_decoder import MAX_ENTRIES, decode
from gateway.json_text import canonical
from gateway.openai import prompt_shortcuts
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import json_schema
from services.common.errors import InvalidRequest
from services.planner.llm.prompt import PlanPromptBuilder
from services.planner.llm.values import InputNames, interpret
from services.planner.request import Turn
from tests.bench.rows import Row, median
from tests.support.plans import LITE, file, large_catalogue, plan_request

REPEATS = 10
CATALOGUE_TASKS = 500
BUDGET_TOKENS = 3_072
TOO_MANY = MAX_ENTRIES + 1

CHAT_PROMPTS: Mapping[str, str] = {
    "blank lines": "\n" * 200_000,
    "beginnings": "# Task:\na title\n" + "<chat_history>" * 20_000,
    "blanks": "USER" + " " * 200_000,
    "braces": "{" * 200_000,
}
"""Chat messages that resemble the built-in prompts of chat front ends."""

LARGE_MESSAGES: Mapping[str, Mapping[str, Any]] = {
    "turns": {"history": [{}] * TOO_MANY},
    "attachments": {"history": [{"attachments": [{"text": ""}] * 500}] * 500},
    "inputs": {"inputs": [{"json": 1}] * TOO_MANY},
    "metadata": {"metadata": {str(number): "" for number in range(TOO_MANY)}},
    "tasks": {"plan": [{"task": "x"}] * TOO_MANY},
    "arguments": {"plan": [{"task": "x", "arguments": {"a": [""] * TOO_MANY}}]},
}
"""Fields of run requests with more entries than the gateway accepts."""

WIDE_JSON: Mapping[str, Any] = {
    "lists": [[]] * 100_000,
    "objects": [{"a": '"\\['}] * 100_000,
    "brackets in a string": "[" * 1_000_000,
    "lists of objects": [[{}]] * 50_000,
}

VALUES: Mapping[str, str] = {
    "tags": "<" * 60_000,
    "braces": "{" * 60_000,
    "a placeholder": "{" + "_" * 60_000,
    "blanks": "< " + " " * 60_000,
    "commas": ", " * 30_000,
}
"""Task arguments that an LLM could write."""

PIECES = ("“", "„", "«", "```", "```\n", "\n", ": ", '"', "a ", "<data ", "\u3042")
"""Repeated to requests of 500,000 characters."""


def doubling_schema() -> dict[str, Any]:
    """A JSON schema whose number of alternatives doubles 40 times."""
    choices = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    return {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/a0"},
        "$defs": {**choices, "a40": {"type": "null"}},
    }


async def rows() -> list[Row]:
    """CPU time of the slowest input of each kind."""
    names, doubling = InputNames({"file1": file("sign.png")}), doubling_schema()
    return [
        _slowest(
            "chat_prompt",
            2_000,
            {
                name: partial(prompt_shortcuts.answer, RunSpec(request=f"{text}x"))
                for name, text in CHAT_PROMPTS.items()
            },
        ),
        _slowest(
            "large_message", 3_000, {name: partial(_decode_rejected, fields) for name, fields in LARGE_MESSAGES.items()}
        ),
        _slowest("wide_json", 2_000, {name: partial(canonical, wide, "x") for name, wide in WIDE_JSON.items()}),
        _slowest(
            "json_schema", 3_000, {"choices that double": partial(json_schema.find_problem, doubling, '{"a": 1}')}
        ),
        _slowest("llm_value", 2_000, {name: partial(interpret, text, names) for name, text in VALUES.items()}),
        _slowest("long_request", 3_000, {repr(piece): partial(_long_request, piece) for piece in PIECES}),
        _prompt(),
    ]


def _slowest(name: str, target: float, works: Mapping[str, Callable[[], object]]) -> Row:
    taken = {kind: _milliseconds(work) for kind, work in works.items()}
    kind = max(taken, key=lambda each: taken[each])
    return Row(f"parsing.{name}_ms", round(taken[kind], 1), "ms", target, note=f"slowest of {len(works)}: {kind}")


def _prompt() -> Row:
    catalogue, prompting = large_catalogue(CATALOGUE_TASKS), PlanPromptBuilder()
    prompting.planning_prompt(plan_request("warm up"), catalogue, BUDGET_TOKENS, _tokens)
    request = plan_request("Read this poster and say it aloud", ["a.png"])
    work = partial(prompting.planning_prompt, request, catalogue, BUDGET_TOKENS, _tokens)
    taken: Sequence[float] = [_milliseconds(work) for _ in range(REPEATS)]
    note = f"prompt of an LLM planner with a few tasks selected from {CATALOGUE_TASKS}; median of {REPEATS}"
    return Row("parsing.planner_prompt_ms", median(taken), "ms", 100, note=note)


def _milliseconds(work: Callable[[], object]) -> float:
    """CPU milliseconds of one call."""
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def _decode_rejected(fields: Mapping[str, Any]) -> None:
    with suppress(InvalidRequest):
        decode(RunSpec, {"request": "x", **fields})


def _long_request(piece: str) -> None:
    request = plan_request(piece * (500_000 // len(piece)), earlier=[Turn(False, piece * 100_000)])
    PlanPromptBuilder().planning_prompt(request, LITE, BUDGET_TOKENS, _tokens)


def _tokens(text: str) -> int:
    """Token estimate, as rough and as high as the LLM client's."""
    return len(text) // 3 + 1
