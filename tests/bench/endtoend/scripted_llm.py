"""Replies of the benchmark's LLM, and the time at which each part of them is sent."""

import json
import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from tests.bench.shapes import INPUTS, TASK, Script
from tests.fakes import TextReply
from tests.fakes.llm.plausible import data, prompt_of, role

FIRST_SECONDS = 0.1
"""Delay of the first token."""
TOKENS_PER_SECOND = 500.0
CHARACTERS = 4
"""Characters per token."""

ANSWER = "All tasks have completed. The results of each task are shown together with this answer."
_CHOICE = {"id": "", "reason": "it does what the words ask for"}
_SHAPE = re.compile(r"Do the (\w+) of (\d+)")


def request(script: Script, number: int) -> str:
    """Text of a request from which the LLM recognizes the script; the number makes it unique."""
    return f"Do the {script.shape} of {script.size}, the time numbered {number}."


def plan(script: Script) -> str:
    """The plan as the LLM writes it, one line per task."""
    seconds = script.seconds()
    lines = [json.dumps(_task(number, needs, seconds[number])) for number, needs in script.graph.items()]
    return '{"tasks": [\n' + ",\n".join(lines) + "\n]}"


def planned(script: Script) -> tuple[Mapping[int, float], float]:
    """Seconds from the request until each task is complete, and until the plan is."""
    text = plan(script)
    return {number: seconds(text[:end]) for number, end in zip(script.graph, ends(text), strict=True)}, seconds(text)


def ends(text: str) -> Sequence[int]:
    """Number of characters of a plan up to the end of each task."""
    return [found.start() + 1 for found in re.finditer(r"}(?:,\n|\n])", text)]


def choice(model: str) -> str:
    return json.dumps(_CHOICE | {"id": model})


def seconds(text: str) -> float:
    """Seconds from the request until the text is complete."""
    return FIRST_SECONDS + (ceil(len(text) / CHARACTERS) - 1) / TOKENS_PER_SECOND


class ScriptedReplies:
    """Reply to each prompt of planner, selector and responder.

    Args:
        scripts: those that can be planned.
    """

    def __init__(self, *scripts: Script) -> None:
        self._plans = {(script.shape, script.size): plan(script) for script in scripts}

    def __call__(self, body: Any) -> TextReply:
        return TextReply(self._text(body), tokens_per_second=TOKENS_PER_SECOND, chunk=CHARACTERS, after=FIRST_SECONDS)

    def _text(self, body: Any) -> str:
        kind, quoted = role(body), data(prompt_of(body))
        if kind == "choice":
            return choice(json.loads(quoted["candidates"].splitlines()[0])["id"])
        found = _SHAPE.search(quoted["request"]) if kind == "plan" else None
        return self._plans[found[1], int(found[2])] if found else ANSWER


def _task(number: int, needs: Sequence[int], seconds: float) -> Mapping[str, Any]:
    """One task in the format of the LLM, whose ids start at 0 and those of a graph at 1."""
    arguments = {name: f"<text>-{need - 1}" for name, need in zip(INPUTS, needs, strict=False)}
    return {
        "task": TASK,
        "id": number - 1,
        "dep": [need - 1 for need in needs] or [-1],
        "args": {**(arguments or {INPUTS[0]: "one two three"}), "seconds": seconds},
        "source": f"step {number}",
    }
