"""Runs with known answers: small random graphs of a text function, and what goes wrong on the way, all from a seed."""

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
"""The run's one input."""

_PORTS = [Port(name="text", modality=MODALITY_TEXT, required=True, many=True)]
_OUTPUTS = [
    Port(name="text", modality=MODALITY_TEXT, required=True),
    Port(name="length", modality=MODALITY_JSON),
]
SPECS = {
    "weave": TaskSpec(name="weave", inputs=_PORTS, outputs=_OUTPUTS, determinism=DETERMINISM_EXACT),
    "knit": TaskSpec(
        name="knit",
        inputs=_PORTS,
        outputs=_OUTPUTS,
        parameters=[Parameter(name="seed", json_schema='{"type":"integer"}')],
        determinism=DETERMINISM_NONE,
    ),
}
"""Two names for one function: what weave gave may be reused by a later run, knit is given a seed."""

AGAIN = ("unavailable", "overloaded", "slow")
"""Faults after which the same model is asked again, and a delay that is none."""
ELSEWHERE = ("missing port", "wrong kind", "unknown port", "broken", "hang")
"""Faults after which another model is asked."""

MOST_AGAIN, MOST_ELSEWHERE = 2, 1
"""Of one task, over all its attempts by all its owners: fewer than what a task can bear."""


def woven(salt: str, texts: Sequence[str]) -> str:
    """What a task gives: hardly ever the same for other inputs, or for the same in another order."""
    return hashlib.sha256("\x1f".join((salt, *texts)).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Node:
    """One task, and what befalls its attempts, first to last, whoever makes them."""

    id: int
    name: str
    needs: tuple[int, ...]
    salt: str
    key: str
    faults: tuple[str, ...]
    shy: bool
    """The selector fails once before it chooses."""

    def _parameters(self, salt: str) -> str:
        """What the expert is told; nothing but the salt where the result may be shared among runs."""
        told: dict[str, object] = {"salt": salt}
        if self.key:
            told |= {"faults": self.faults, "key": self.key}
        return json.dumps(told, sort_keys=True, separators=(",", ":"))

    def task(self, *, draft: bool = False) -> Task:
        """The task as it is planned; a draft gives what nobody wants."""
        salt = "draft" if draft else self.salt
        given = [Argument(reference=Reference(task_id=need, output="text")) for need in self.needs]
        if not given:
            given = [Argument(value=Value(text=salt)), Argument(input=InputRef(name=INPUT))]
        arguments = {"text": Argument(list=ArgumentList(items=given))}
        return Task(id=self.id, task=self.name, arguments=arguments, parameters_json=self._parameters(salt))


@dataclass(frozen=True)
class Case:
    """A run to ask for."""

    number: int
    seed: int
    shape: str
    word: str
    nodes: tuple[Node, ...]
    supplied: bool
    """The plan comes with the run; else the planner streams it."""
    breaks: tuple[int, ...]
    """After how many tasks, counted from where it starts, each of the planner's first streams breaks off."""
    mode: "RunMode.ValueType"
    cancels_after: int
    """Number of the event after which the client cancels it; 0: never."""
    leaves_with_client: bool
    """It is cancelled when the client leaves the stream that asked for it."""
    edited: bool
    """What is planned is a draft; its approval brings what is to run."""

    def spec(self) -> RunSpec:
        spec = RunSpec(
            request=f"case {self.number}",
            inputs=[NamedValue(name=INPUT, value=Value(text=self.word))],
            mode=self.mode,
            idempotency_key=f"case-{self.seed}-{self.number}",
        )
        if self.supplied:
            spec.plan.CopyFrom(self.plan(draft=self.edited))
        if self.leaves_with_client:
            spec.on_disconnect = ON_DISCONNECT_CANCEL
        return spec

    def plan(self, *, draft: bool = False) -> Plan:
        return Plan(tasks=[node.task(draft=draft) for node in self.nodes])

    @cached_property
    def outputs(self) -> Mapping[int, str]:
        """The right text of every task."""
        texts: dict[int, str] = {}
        for node in self.nodes:
            given = [texts[need] for need in node.needs] or [node.salt, self.word]
            texts[node.id] = woven(node.salt, given)
        return texts

    @property
    def answer(self) -> str:
        """The right words at the end."""
        if self.mode == RUN_MODE_RESULTS:
            return ""
        return "".join(f"Task {task_id} gave {text}. " for task_id, text in self.outputs.items())


def case_of(request: str) -> int:
    """The number of the case that a request is about."""
    return int(request.removeprefix("case "))


def cases(seed: int, count: int) -> list[Case]:
    """The same for the same seed; a case does not depend on how many there are."""
    return [_case(seed, number, Random(f"{seed}/{number}")) for number in range(1, count + 1)]


def _case(seed: int, number: int, random: Random) -> Case:
    shape = random.choices(list(_SHAPES), weights=(10, 25, 25, 20, 18, 2))[0]
    needs = _SHAPES[shape](random)
    mode = random.choices((RUN_MODE_UNSPECIFIED, RUN_MODE_RESULTS, RUN_MODE_APPROVE), weights=(60, 30, 10))[0]
    supplied = random.random() < 0.6  # a share
    breaks = () if supplied else tuple(random.randint(0, len(needs)) for _ in range(random.choice((0, 0, 1, 1, 2))))
    leaves = random.random() < 0.05  # a share
    return Case(
        number=number,
        seed=seed,
        shape=shape,
        word=f"word{random.randrange(8)}",
        nodes=tuple(_node(seed, number, task_id, tuple(need), random) for task_id, need in needs.items()),
        supplied=supplied,
        breaks=breaks,
        mode=mode,
        edited=mode == RUN_MODE_APPROVE and random.random() < 0.5,  # a share
        cancels_after=random.randint(1, 12) if not leaves and random.random() < 0.04 else 0,  # a share
        leaves_with_client=leaves,
    )


def _node(seed: int, number: int, task_id: int, needs: tuple[int, ...], random: Random) -> Node:
    if not needs and random.random() < 0.15:  # a share
        return Node(task_id, "weave", needs, f"common {random.randrange(6)}", "", (), shy=False)
    faults = [random.choice(AGAIN) for _ in range(random.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, MOST_AGAIN)))]
    faults += [random.choice(ELSEWHERE) for _ in range(random.choice((0, 0, 0, 0, 0, 0, MOST_ELSEWHERE)))]
    random.shuffle(faults)
    key = f"{number}-{task_id}"
    name = random.choice(list(SPECS))
    return Node(task_id, name, needs, f"{seed} {key}", key, tuple(faults), shy=random.random() < 0.03)  # a share


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
