"""Plans of known shape and delays, and their critical path if only the scripted services took time."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_TEXT, Value
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Argument, Port, Reference, Task, TaskSpec

TASK = "noop"
INPUTS = ("first", "second", "third")
SPEC = TaskSpec(
    name=TASK,
    description="Takes a given time, and returns a text.",
    inputs=[Port(name=name, modality=MODALITY_TEXT) for name in INPUTS],
    outputs=[Port(name="text", modality=MODALITY_TEXT, required=True)],
)

NAMED = "models named in the plan"
"""Remark in notes on pinned scripts: the selector is called once for all runs that pin the same models."""

SEED = 4
ROOTS = 4
"""Tasks of the random graph without dependencies."""
REACH = 12
"""Greatest distance of a dependency: at most ten tasks are ready at once, which is below the orchestrator's limits."""


def _single(_: int) -> list[list[int]]:
    return [[]]


def _chain(size: int) -> list[list[int]]:
    return [[number] if number else [] for number in range(size)]


def _wide(size: int) -> list[list[int]]:
    return [[] for _ in range(size)]


def _diamond(size: int) -> list[list[int]]:
    return [[], [1], [1], [2, 3]]


def _random(size: int) -> list[list[int]]:
    rng = random.Random(SEED)
    graph: list[list[int]] = []
    for number in range(1, size + 1):
        earlier = range(max(1, number - REACH), number)
        graph.append(sorted(rng.sample(earlier, rng.choice([1, 1, 2, 3]))) if number > ROOTS else [])
    return graph


SHAPES = {"single": _single, "chain": _chain, "wide": _wide, "diamond": _diamond, "random": _random}


@dataclass(frozen=True)
class Script:
    """Delays of the scripted services in one run, in seconds; they recognize it by the text of the request.

    Attributes:
        shape: of the graph, one of SHAPES.
        size: number of tasks.
        plan: until the first task is planned.
        gap: between two tasks of the plan.
        select: of each selection.
        expert: of each task; in the random shape from half to twice as long.
        answer: until the response begins.
        pinned: tasks pin their models, so that the selector is not called for each.
    """

    shape: str
    size: int
    plan: float = 0.0
    gap: float = 0.0
    select: float = 0.0
    expert: float = 0.0
    answer: float = 0.0
    pinned: bool = True

    @property
    def request(self) -> str:
        """The request's text, from which parse_script restores the script."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @property
    def graph(self) -> Mapping[int, Sequence[int]]:
        """Ids of the tasks that each task depends on."""
        return dict(enumerate(SHAPES[self.shape](self.size), start=1))

    def seconds(self) -> dict[int, float]:
        """Seconds of the expert for each task."""
        rng = random.Random(SEED)
        factors = [rng.uniform(0.5, 2.0) if self.shape == "random" else 1.0 for _ in self.graph]
        return {task_id: round(self.expert * factor, 3) for task_id, factor in zip(self.graph, factors, strict=True)}

    def plan_message(self) -> Plan:
        """The plan. A task's milliseconds are its pinned model, or its source, which becomes the selected model."""
        seconds = self.seconds()
        return Plan(tasks=[self._task(task_id, needs, seconds[task_id]) for task_id, needs in self.graph.items()])

    def critical(self) -> tuple[float, int]:
        """Seconds of the critical path from request to response, and the number of tasks on it."""
        ready = {task_id: self.plan + index * self.gap + self.select for index, task_id in enumerate(self.graph)}
        last, tasks = longest(self.graph, ready, self.seconds())
        return last + self.answer, tasks

    def _task(self, task_id: int, needs: Sequence[int], seconds: float) -> Task:
        delay = {"pinned_model" if self.pinned else "source": f"{1000 * seconds:g}"}
        return Task(id=task_id, task=TASK, arguments=_arguments(needs), **delay)


def longest(
    graph: Mapping[int, Sequence[int]], ready: Mapping[int, float], seconds: Mapping[int, float]
) -> tuple[float, int]:
    """Earliest end of the last task of a graph, and the number of tasks on the path to it.

    Args:
        graph: dependencies of each task, which come before it.
        ready: earliest start of each task, apart from its dependencies.
        seconds: duration of each task.
    """
    ends: dict[int, tuple[float, int]] = {}
    for task_id, needs in graph.items():
        started, before = max([(ready[task_id], 0), *(ends[need] for need in needs)])
        ends[task_id] = started + seconds[task_id], before + 1
    return max(ends.values())


def parse_script(request: str) -> Script:
    """The script with this request; one task without delays for any other text."""
    return Script(**json.loads(request)) if request.startswith("{") else Script("single", 1)


def _arguments(needs: Sequence[int]) -> dict[str, Argument]:
    references = {
        name: Argument(reference=Reference(task_id=need, output="text"))
        for name, need in zip(INPUTS, needs, strict=False)
    }
    return references or {INPUTS[0]: Argument(value=Value(text="one two three"))}
