"""What the LLM of the benchmark says, and when each part of it is out."""

import json
import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from tests.bench.shapes import INPUTS, TASK, Script
from tests.fakes import Says
from tests.fakes.llm.plausible import data, prompt_of, role

FIRST_SECONDS = 0.1
"""Until the first token."""
TOKENS_PER_SECOND = 500.0
CHARACTERS = 4
"""Of a token."""

ANSWER = "All of it is done: each task has said so, and what it said is shown beside this answer."
_CHOICE = {"id": "", "reason": "it does what the words ask for"}
_SHAPE = re.compile(r"Do the (\w+) of (\d+)")


def request(script: Script, number: int) -> str:
    """Words by which the LLM knows what to plan; no two requests are the same."""
    return f"Do the {script.shape} of {script.size}, the time numbered {number}."


def plan(script: Script) -> str:
    """The plan as an LLM writes it, a line for each task."""
    seconds = script.seconds()
    lines = [json.dumps(_task(number, needs, seconds[number])) for number, needs in script.graph.items()]
    return '{"tasks": [\n' + ",\n".join(lines) + "\n]}"


def planned(script: Script) -> tuple[Mapping[int, float], float]:
    """Seconds from asking until each task is out, and until the whole plan is."""
    text = plan(script)
    return {number: seconds(text[:end]) for number, end in zip(script.graph, ends(text), strict=True)}, seconds(text)


def ends(text: str) -> Sequence[int]:
    """So many characters of a plan are out when each task is."""
    return [found.start() + 1 for found in re.finditer(r"}(?:,\n|\n])", text)]


def choice(model: str) -> str:
    return json.dumps(_CHOICE | {"id": model})


def seconds(text: str) -> float:
    """From asking until all of the text is out."""
    return FIRST_SECONDS + (ceil(len(text) / CHARACTERS) - 1) / TOKENS_PER_SECOND


class Speaker:
    """Says what is asked for.

    Args:
        scripts: what may be asked for.
    """

    def __init__(self, *scripts: Script) -> None:
        self._plans = {(script.shape, script.size): plan(script) for script in scripts}

    def __call__(self, body: Any) -> Says:
        return Says(self._text(body), tokens_per_second=TOKENS_PER_SECOND, chunk=CHARACTERS, after=FIRST_SECONDS)

    def _text(self, body: Any) -> str:
        asked, told = role(body), data(prompt_of(body))
        if asked == "choice":
            return choice(json.loads(told["candidates"].splitlines()[0])["id"])
        found = _SHAPE.search(told["request"]) if asked == "plan" else None
        return self._plans[found[1], int(found[2])] if found else ANSWER


def _task(number: int, needs: Sequence[int], seconds: float) -> Mapping[str, Any]:
    """Ids of an LLM count from 0, those of a graph from 1."""
    given = {name: f"<text>-{need - 1}" for name, need in zip(INPUTS, needs, strict=False)}
    return {
        "task": TASK,
        "id": number - 1,
        "dep": [need - 1 for need in needs] or [-1],
        "args": {**(given or {INPUTS[0]: "one two three"}), "seconds": seconds},
        "source": f"step {number}",
    }
