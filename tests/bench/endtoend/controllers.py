"""Combinations of controllers (LLM or embedded, by role), and their critical paths if only LLM and expert took time."""

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
_TRANSLATE = 'Translate "the house is old" into French, German, Spanish'
REQUESTS = {
    "single": "Summarize: one two three.",
    "chain_4": f"{_STORY}, and translate that into French.",
    "chain_8": f"{_STORY}, translate that into French, then translate that into Spanish, then translate that into "
    "Italian, then translate that into Dutch, and translate that into Polish.",
    "wide_4": f"{_TRANSLATE} and Italian.",
    "wide_8": f"{_TRANSLATE}, Italian, Dutch, Polish, Swedish and Greek.",
}
"""Requests that the embedded planner plans to these shapes; it plans no task that takes the outputs of two others."""


@dataclass(frozen=True)
class Controller:
    """How a run is planned, its models selected and its response written.

    Attributes:
        name: in the rows.
        about: description for notes.
        llm_roles: those of planner, selector and responder that call an LLM.
        supplied: the plan comes with the request.
        answers: the run has a response.
    """

    name: str
    about: str
    llm_roles: Collection[str] = ()
    supplied: bool = False
    answers: bool = True

    def shapes(self) -> Mapping[str, Script]:
        """Shapes that it can plan."""
        return SHAPES if self.supplied or self.llm_roles else {name: SHAPES[name] for name in REQUESTS}

    def body(self, name: str, number: int) -> Mapping[str, Any]:
        """Body of a request to the gateway for a shape.

        Args:
            name: of the shape.
            number: unique number of the request.
        """
        body = {"bypass_memo": True} | ({} if self.answers else {"mode": "results"})
        if self.supplied:
            return body | {"plan": _supplied(SHAPES[name])}
        text = scripted_llm.request(SHAPES[name], number) if self.llm_roles else REQUESTS[name]
        return body | {"request": text}

    def ready(self, script: Script) -> tuple[Mapping[int, float], float]:
        """Earliest start of each task, apart from its dependencies, and seconds until the plan is complete."""
        if "planner" not in self.llm_roles:
            return dict.fromkeys(script.graph, 0.0), 0.0
        planned, whole = scripted_llm.planned(script)
        chosen = scripted_llm.seconds(scripted_llm.choice(f"{TASK}-large")) if "selector" in self.llm_roles else 0.0
        return {task_id: seconds + chosen for task_id, seconds in planned.items()}, whole

    def critical(self, script: Script) -> tuple[float, int]:
        """Seconds of the critical path to the end of the run, and the number of tasks on it."""
        ready, planned = self.ready(script)
        last, tasks = longest(script.graph, ready, script.seconds())
        answer = scripted_llm.seconds(scripted_llm.ANSWER) if self.answers and "responder" in self.llm_roles else 0.0
        return max(last, planned) + answer, tasks

    def calls(self, tasks: int) -> int:
        """LLM calls that the original HuggingGPT (JARVIS) makes for this number of tasks."""
        return 2 + (tasks if "selector" in self.llm_roles else 0)


CONTROLLERS = (
    Controller("results", "a supplied plan, results only", supplied=True, answers=False),
    Controller("supplied", "a supplied plan, response without an LLM", supplied=True),
    Controller("embedded", "planned, selected and answered without an LLM"),
    Controller("llm_results", "planned by an LLM, results only", ("planner", "responder"), answers=False),
    Controller("llm", "planned and answered by an LLM", ("planner", "responder")),
    Controller("llm_selects", "planned, selected and answered by an LLM", ROLES),
)


def _supplied(script: Script) -> list[Any]:
    """The plan as the HTTP API accepts it, with the seconds of each task as a parameter."""
    seconds = script.seconds()
    tasks = [MessageToDict(task, preserving_proto_field_name=True) for task in script.plan_message().tasks]
    return [
        {
            "id": task["id"],
            "task": TASK,
            "arguments": {name: _argument(argument) for name, argument in task["arguments"].items()},
            "parameters": {"seconds": seconds[task["id"]]},
        }
        for task in tasks
    ]


def _argument(argument: Mapping[str, Any]) -> Any:
    return argument.get("reference") or argument["value"]["text"]
