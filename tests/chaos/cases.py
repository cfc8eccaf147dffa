"""Runs with known results: random graphs of a text function with the faults of each task, generated from a seed."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TEXT, NamedValue, Value
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import (
    ON_DISCONNECT_CANCEL,
    RUN_MODE_APPROVE,
    RUN_MODE_RESULTS,
    RUN_MODE_UNSPECIFIED,
    RunMode,
    RunSpec,
)
from protos.hugginggpt.v1.task_pb2 import (
    DETERMINISM_EXACT,
    DETERMINISM_NONE,
    Argument,
    ArgumentList,
    InputRef,
    Parameter,
    Port,
    Reference,
    Task,
    TaskSpec,
)

INPUT = "word"
"""Name of the run's only input."""

_PORTS = [Port(name="text", modality=MODALITY_TEXT, required=True, many=True)]
_OUTPUTS = [
    Port(name="text", modality=MODALITY_TEXT, required=True),
    Port(name="length", modality=MODALITY_JSON),
]
SPECS = {
    "hash": TaskSpec(name="hash", inputs=_PORTS, outputs=_OUTPUTS, determinism=DETERMINISM_EXACT),
    "seeded-hash": TaskSpec(
        name="seeded-hash",
        inputs=_PORTS,
        outputs=_OUTPUTS,
        parameters=[Parameter(name="seed", json_schema='{"type":"integer"}')],
        determinism=DETERMINISM_NONE,
    ),
}
"""Two tasks with the same function: results of hash may be reused by later runs, seeded-hash is given a seed."""

RETRY_FAULTS = ("unavailable", "overloaded", "slow")
"""Faults after which the same model is retried, and a delay that is not a fault."""
FALLBACK_FAULTS = ("missing port", "wrong kind", "unknown port", "broken", "hang")
"""Faults after which the next candidate is used."""

MAX_RETRY_FAULTS, MAX_FALLBACK_FAULTS = 2, 1
"""Limits per task, over all attempts by all owners of the run: below the orchestrator's limits."""


def digest(salt: str, texts: Sequence[str]) -> str:
    """Output of a task: differs for different inputs, and for the same inputs in another order."""
    return hashlib.sha256("\x1f".join((salt, *texts)).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Node:
    """One task.

    Attributes:
        id: in the plan.
        name: one of SPECS.
        needs: ids of its dependencies.
        salt: input of the function.
        key: identifies it in the experts' ledger; empty if its result may be shared among runs.
        faults: of its attempts, in order, across all owners of the run.
        selector_fails: the first selection fails.
    """

    id: int
    name: str
    needs: tuple[int, ...]
    salt: str
    key: str
    faults: tuple[str, ...]
    selector_fails: bool

    def _parameters(self, salt: str) -> str:
        """Parameters for the expert: only the salt if the result may be shared among runs."""
        parameters: dict[str, object] = {"salt": salt}
        if self.key:
            parameters |= {"faults": self.faults, "key": self.key}
        return json.dumps(parameters, sort_keys=True, separators=(",", ":"))

    def task(self, *, draft: bool = False) -> Task:
        """The task in a plan; in a draft plan its result is wrong."""
        salt = "draft" if draft else self.salt
        items = [Argument(reference=Reference(task_id=need, output="text")) for need in self.needs]
        if not items:
            items = [Argument(value=Value(text=salt)), Argument(input=InputRef(name=INPUT))]
        arguments = {"text": Argument(list=ArgumentList(items=items))}
        return Task(id=self.id, task=self.name, arguments=arguments, parameters_json=self._parameters(salt))


@dataclass(frozen=True)
class Case:
    """One run with its expected results.

    Attributes:
        shape: name of the graph's shape.
        word: value of the input.
        supplied: the plan comes with the request; else the planner streams it.
        stream_breaks: tasks after which each of the planner's first streams is interrupted.
        cancels_after: sequence number of the event after which the client cancels the run; 0: never.
        cancel_on_disconnect: the run is cancelled when the client leaves its stream.
        edited: the plan is a draft, and the approval contains the final plan.
    """

    number: int
    seed: int
    shape: str
    word: str
    nodes: tuple[Node, ...]
    supplied: bool
    stream_breaks: tuple[int, ...]
    mode: "RunMode.ValueType"
    cancels_after: int
    cancel_on_disconnect: bool
    edited: bool

    def spec(self) -> RunSpec:
        spec = RunSpec(
            request=f"case {self.number}",
            inputs=[NamedValue(name=INPUT, value=Value(text=self.word))],
            mode=self.mode,
            idempotency_key=f"case-{self.seed}-{self.number}",
        )
        if self.supplied:
            spec.plan.CopyFrom(self.plan(draft=self.edited))
        if self.cancel_on_disconnect:
            spec.on_disconnect = ON_DISCONNECT_CANCEL
        return spec

    def plan(self, *, draft: bool = False) -> Plan:
        return Plan(tasks=[node.task(draft=draft) for node in self.nodes])

    @cached_property
    def outputs(self) -> Mapping[int, str]:
        """Expected text of every task."""
        texts: dict[int, str] = {}
        for node in self.nodes:
            inputs = [texts[need] for need in node.needs] or [node.salt, self.word]
            texts[node.id] = digest(node.salt, inputs)
        return texts

    @property
    def answer(self) -> str:
        """Expected response."""
        if self.mode == RUN_MODE_RESULTS:
            return ""
        return "".join(f"Task {task_id} gave {text}. " for task_id, text in self.outputs.items())


def case_of(request: str) -> int:
    """Number of the case in a request's text."""
    return int(request.removeprefix("case "))


def cases(seed: int, count: int) -> list[Case]:
    """Generates cases; equal seeds give equal cases, whatever their number."""
    return [_case(seed, number, Random(f"{seed}/{number}")) for number in range(1, count + 1)]


def _case(seed: int, number: int, random: Random) -> Case:
    shape = random.choices(list(_SHAPES), weights=(10, 25, 25, 20, 18, 2))[0]
    needs = _SHAPES[shape](random)
    mode = random.choices((RUN_MODE_UNSPECIFIED, RUN_MODE_RESULTS, RUN_MODE_APPROVE), weights=(60, 30, 10))[0]
    supplied = random.random() < 0.6
    stream_breaks = (
        () if supplied else tuple(random.randint(0, len(needs)) for _ in range(random.choice((0, 0, 1, 1, 2))))
    )
    leaves = random.random() < 0.05
    return Case(
        number=number,
        seed=seed,
        shape=shape,
        word=f"word{random.randrange(8)}",
        nodes=tuple(_node(seed, number, task_id, tuple(need), random) for task_id, need in needs.items()),
        supplied=supplied,
        stream_breaks=stream_breaks,
        mode=mode,
        edited=mode == RUN_MODE_APPROVE and random.random() < 0.5,
        cancels_after=random.randint(1, 12) if not leaves and random.random() < 0.04 else 0,
        cancel_on_disconnect=leaves,
    )


def _node(seed: int, number: int, task_id: int, needs: tuple[int, ...], random: Random) -> Node:
    if not needs and random.random() < 0.15:
        return Node(task_id, "hash", needs, f"common {random.randrange(6)}", "", (), selector_fails=False)
    faults = [random.choice(RETRY_FAULTS) for _ in range(random.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, MAX_RETRY_FAULTS)))]
    faults += [random.choice(FALLBACK_FAULTS) for _ in range(random.choice((0, 0, 0, 0, 0, 0, MAX_FALLBACK_FAULTS)))]
    random.shuffle(faults)
    key = f"{number}-{task_id}"
    name = random.choice(list(SPECS))
    return Node(task_id, name, needs, f"{seed} {key}", key, tuple(faults), selector_fails=random.random() < 0.03)


Needs = dict[int, list[int]]


def _chain(random: Random) -> Needs:
    return {task_id: [task_id - 1] if task_id > 1 else [] for task_id in range(1, random.randint(2, 6) + 1)}


def _diamond(random: Random) -> Needs:
    middle = list(range(2, 2 + random.randint(2, 3)))
    return {1: [], **{task_id: [1] for task_id in middle}, middle[-1] + 1: middle}


def _wide(random: Random) -> Needs:
    width = random.randint(3, 8)
    return {**{task_id: [] for task_id in range(1, width + 1)}, width + 1: list(range(1, width + 1))}


def _grown(random: Random, size: int) -> Needs:
    return {
        task_id: sorted(random.sample(range(1, task_id), min(task_id - 1, random.randint(0, 3))))
        for task_id in range(1, size + 1)
    }


_SHAPES: dict[str, Callable[[Random], Needs]] = {
    "single": lambda _: {1: []},
    "chain": _chain,
    "diamond": _diamond,
    "wide": _wide,
    "random": lambda random: _grown(random, random.randint(4, 10)),
    "large": lambda random: _grown(random, random.randint(30, 40)),
}
