"""The ways in which a run is controlled, and how soon each could be over if nothing but LLM and expert took time."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from tests.bench.endtoend import scripted_llm
from tests.bench.endtoend.deployment import EXPERT_SECONDS, ROLES
from tests.bench.shapes import TASK, Script, longest

SHAPES = {
    "single": Script("single", 1, expert=EXPERT_SECONDS),
    "chain_4": Script("chain", 4, expert=EXPERT_SECONDS),
    "chain_8": Script("chain", 8, expert=EXPERT_SECONDS),
    "wide_4": Script("wide", 4, expert=EXPERT_SECONDS),
    "wide_8": Script("wide", 8, expert=EXPERT_SECONDS),
    "diamond": Script("diamond", 4, expert=EXPERT_SECONDS),
    "random_100": Script("random", 100, expert=EXPERT_SECONDS),
}

_STORY = "Write a story about a cat, summarize it, translate the summary into German"
_HOUSE = 'Translate "the house is old" into French, German, Spanish'
WORDS = {
    "single": "Summarize: one two three.",
    "chain_4": f"{_STORY}, and translate that into French.",
    "chain_8": f"{_STORY}, translate that into French, then translate that into Spanish, then translate that into "
    "Italian, then translate that into Dutch, and translate that into Polish.",
    "wide_4": f"{_HOUSE} and Italian.",
    "wide_8": f"{_HOUSE}, Italian, Dutch, Polish, Swedish and Greek.",
}
"""Requests that are planned to these shapes without an LLM; no task in words takes what two others make."""


@dataclass(frozen=True)
class Controller:
    """Who plans, selects and answers."""

    name: str
    about: str
    asking: Collection[str] = ()
    """Who of planner, selector and responder asks an LLM."""
    supplied: bool = False
    """The plan comes with the request."""
    answers: bool = True

    def shapes(self) -> Mapping[str, Script]:
        """Those that it can be asked for."""
        return SHAPES if self.supplied or self.asking else {name: SHAPES[name] for name in WORDS}

    def body(self, name: str, number: int) -> Mapping[str, Any]:
        """Asks the gateway for a shape.

        Args:
            name: of the shape.
            number: of the request, that no other has.
        """
        body = {"bypass_memo": True} | ({} if self.answers else {"mode": "results"})
        if self.supplied:
            return body | {"plan": _supplied(SHAPES[name])}
        return body | {"request": scripted_llm.request(SHAPES[name], number) if self.asking else WORDS[name]}

    def ready(self, script: Script) -> tuple[Mapping[int, float], float]:
        """Seconds until each task could start, but for what it needs, and until the plan is whole."""
        if "planner" not in self.asking:
            return dict.fromkeys(script.graph, 0.0), 0.0
        planned, whole = scripted_llm.planned(script)
        chosen = scripted_llm.seconds(scripted_llm.choice(f"{TASK}-large")) if "selector" in self.asking else 0.0
        return {task_id: seconds + chosen for task_id, seconds in planned.items()}, whole

    def critical(self, script: Script) -> tuple[float, int]:
        """Seconds of the longest way to the answer, and the tasks on it."""
        ready, planned = self.ready(script)
        last, tasks = longest(script.graph, ready, script.seconds())
        answer = scripted_llm.seconds(scripted_llm.ANSWER) if self.answers and "responder" in self.asking else 0.0
        return max(last, planned) + answer, tasks

    def calls(self, tasks: int) -> int:
        """Of LLMs, that the first HuggingGPT makes for as many tasks."""
        return 2 + (tasks if "selector" in self.asking else 0)


CONTROLLERS = (
    Controller("results", "a supplied plan, results only", supplied=True, answers=False),
    Controller("supplied", "a supplied plan, its answer composed", supplied=True),
    Controller("embedded", "planned, selected and answered without an LLM"),
    Controller("llm_results", "planned by an LLM, results only", ("planner", "responder"), answers=False),
    Controller("llm", "planned and answered by an LLM", ("planner", "responder")),
    Controller("llm_selects", "planned, selected and answered by an LLM", ROLES),
)


def _supplied(script: Script) -> list[Any]:
    """The plan as the gateway takes it, with the time of each task as its parameter."""
    seconds = script.seconds()
    tasks = [MessageToDict(task, preserving_proto_field_name=True) for task in script.supplied().tasks]
    return [
        {
            "id": task["id"],
            "task": TASK,
            "arguments": {name: _argument(given) for name, given in task["arguments"].items()},
            "parameters": {"seconds": seconds[task["id"]]},
        }
        for task in tasks
    ]


def _argument(given: Mapping[str, Any]) -> Any:
    return given.get("reference") or given["value"]["text"]
