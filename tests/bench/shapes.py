"""Plans of known shape and pace, and how soon a run of them could be over if nothing but the cast took time."""

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
    description="Takes a while, and says so.",
    inputs=[Port(name=name, modality=MODALITY_TEXT) for name in INPUTS],
    outputs=[Port(name="text", modality=MODALITY_TEXT, required=True)],
)

NAMED = "models named in the plan"
"""What notes say of pinned scripts: the selector is asked once for all runs that pin the same."""

SEED = 4
ROOTS = 4
"""Tasks of the random graph that need none."""
REACH = 12
"""How far back the others look for what they need: ten are ready at once at most, so no limit of ours counts."""


def _single(_: int) -> list[list[int]]:
    return [[]]


def _chain(size: int) -> list[list[int]]:
    return [[number] if number else [] for number in range(size)]


def _wide(size: int) -> list[list[int]]:
    return [[] for _ in range(size)]


def _diamond(size: int) -> list[list[int]]:
    return [[], [1], [1], [2, 3]]


def _random(size: int) -> list[list[int]]:
    dice = random.Random(SEED)
    graph: list[list[int]] = []
    for number in range(1, size + 1):
        earlier = range(max(1, number - REACH), number)
        graph.append(sorted(dice.sample(earlier, dice.choice([1, 1, 2, 3]))) if number > ROOTS else [])
    return graph


SHAPES = {"single": _single, "chain": _chain, "wide": _wide, "diamond": _diamond, "random": _random}


@dataclass(frozen=True)
class Script:
    """What the cast does in one run; all times in seconds. Its words are the request, by which the cast knows it."""

    shape: str
    size: int
    plan: float = 0.0
    """Until the first task is out."""
    gap: float = 0.0
    """Between two tasks."""
    select: float = 0.0
    expert: float = 0.0
    """Of a task; those of the random shape take from half to twice as long."""
    answer: float = 0.0
    pinned: bool = True
    """Its tasks name their models, so that the selector need not be asked of each."""

    @property
    def words(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @property
    def graph(self) -> Mapping[int, Sequence[int]]:
        """The tasks each task needs."""
        return dict(enumerate(SHAPES[self.shape](self.size), start=1))

    def seconds(self) -> dict[int, float]:
        """What each task takes of its expert."""
        dice = random.Random(SEED)
        drawn = [dice.uniform(0.5, 2.0) if self.shape == "random" else 1.0 for _ in self.graph]
        return {task_id: round(self.expert * factor, 3) for task_id, factor in zip(self.graph, drawn, strict=True)}

    def supplied(self) -> Plan:
        """The plan; the model of a task says how many milliseconds it takes, or else its source, for the selector."""
        seconds = self.seconds()
        return Plan(tasks=[self._task(task_id, needs, seconds[task_id]) for task_id, needs in self.graph.items()])

    def critical(self) -> tuple[float, int]:
        """Seconds of the longest way from request to answer, and the tasks on it."""
        ready = {task_id: self.plan + place * self.gap + self.select for place, task_id in enumerate(self.graph)}
        last, tasks = longest(self.graph, ready, self.seconds())
        return last + self.answer, tasks

    def _task(self, task_id: int, needs: Sequence[int], seconds: float) -> Task:
        paced = {"pinned_model" if self.pinned else "source": f"{1000 * seconds:g}"}
        return Task(id=task_id, task=TASK, arguments=_arguments(needs), **paced)


def longest(
    graph: Mapping[int, Sequence[int]], ready: Mapping[int, float], seconds: Mapping[int, float]
) -> tuple[float, int]:
    """When the last task of a graph can be done, and how many tasks it takes to come there.

    Args:
        graph: the tasks each task needs, all of them before it.
        ready: when each can be started, but for what it needs.
        seconds: what each takes.
    """
    ends: dict[int, tuple[float, int]] = {}
    for task_id, needs in graph.items():
        begun, before = max([(ready[task_id], 0), *(ends[need] for need in needs)])
        ends[task_id] = begun + seconds[task_id], before + 1
    return max(ends.values())


def script(words: str) -> Script:
    """The script that has these words; one without pauses for any others."""
    return Script(**json.loads(words)) if words.startswith("{") else Script("single", 1)


def _arguments(needs: Sequence[int]) -> dict[str, Argument]:
    references = {
        name: Argument(reference=Reference(task_id=need, output="text"))
        for name, need in zip(INPUTS, needs, strict=False)
    }
    return references or {INPUTS[0]: Argument(value=Value(text="one two three"))}
