"""What a turn costs as its conversation grows to five hundred, and what planner, responder and LLM are told of it."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import grpc

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RunSpec
from services.common.channel import connect
from services.llm.token_estimate import Estimate
from services.planner.catalog import standard_specs
from services.planner.llm.prompt import Prompting
from services.planner.request import Request, Turn
from tests.bench.cast import TALLY
from tests.bench.curves import Curve, Measured, Point
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.processes import Stage, staged
from tests.bench.rows import Row
from tests.bench.shapes import NAMED, Script

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

CONVERSATIONS = 4
ENDS = (4, 20, 100, 500)
"""Turns until which they are looked at in one go."""
EXPONENT = 0.5
GROWTH_MB = 15
WORDS = Script("single", 1).words
PROMPT_TOKENS = 8_000
"""For which an LLM has room."""
SAID = "And what would the second of the three summaries say, if it were half as long?"


@dataclass(frozen=True)
class Stretch:
    """Some turns of every conversation, until one of this number."""

    end: int
    cpu: float
    """Milliseconds of the orchestrator for a turn."""
    told: float
    """Bytes that planner and responder are sent for a turn."""


async def rows() -> list[Measured]:
    """Figures of conversations whose turns the house keeps, and of what an LLM would be told of them."""
    with TemporaryDirectory() as home:
        async with staged(Path(home)) as stage, connect(stage.orchestrator.address) as channel:
            talks = _Talks(stage, OrchestratorServiceStub(channel))
            await talks.until(ENDS[0])
            before = await stage.orchestrator.resident_mb()
            talks.start()
            stretches = [await talks.until(end) for end in ENDS]
            grown = await stage.orchestrator.resident_mb() - before
    cpu = _curve("cpu", "A turn", "ms of the orchestrator's processor", [(one.end, one.cpu) for one in stretches])
    told = _curve("told", "What planner and responder are sent", "bytes", [(one.end, one.told) for one in stretches])
    prompts = _curve("prompt", "The prompt of a plan", "tokens", [(end, _prompt(end)) for end in ENDS])
    note = f"of the orchestrator, by {CONVERSATIONS} conversations of {ENDS[-1]} turns; a script plans, {NAMED}"
    curves = (cpu, told, prompts)
    fitted = [row for curve in curves for row in curve.exponents(EXPONENT)]
    return [*fitted, Row("scale.conversations_growth_mb", round(grown, 1), "MB", GROWTH_MB, note=note), *curves]


def _curve(kind: str, what: str, unit: str, points: Sequence[Point]) -> Curve:
    title = f"{what} by the turns of its conversation"
    return Curve(f"scale.conversations_{kind}", title, "turns", unit, {"turn": points})


@dataclass
class _Talks:
    """Conversations that go on beside each other."""

    stage: Stage
    stub: "OrchestratorServiceAsyncStub"
    _parents: list[str] = field(default_factory=lambda: [""] * CONVERSATIONS)
    _turns: int = 0

    def start(self) -> None:
        """Conversations anew."""
        self._parents, self._turns = [""] * CONVERSATIONS, 0

    async def until(self, end: int) -> Stretch:
        turns = CONVERSATIONS * (end - self._turns)
        told, cpu = await self._told(), self.stage.orchestrator.cpu_seconds()
        async with asyncio.TaskGroup() as group:
            for place in range(CONVERSATIONS):
                group.create_task(self._go_on(place, end - self._turns))
        self._turns = end
        sent = await self._told() - told
        used = self.stage.orchestrator.cpu_seconds() - cpu
        return Stretch(end, 1000 * used / turns, sent / turns)

    async def _go_on(self, place: int, turns: int) -> None:
        for _ in range(turns):
            spec = RunSpec(request=WORDS, parent_run_id=self._parents[place], bypass_memo=True)
            async for event in self.stub.CreateRun(CreateRunRequest(spec=spec), timeout=PATIENCE_SECONDS):
                last = event
            if last.run_ended.state != RUN_STATE_COMPLETED:
                raise RuntimeError(f"a turn of the benchmark failed: {last.run_ended.failure.message}")
            self._parents[place] = last.run_id

    async def _told(self) -> int:
        async with connect(self.stage.cast.address) as channel:
            tally: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(TALLY)
            called = Counter[str](json.loads(await tally(b"", timeout=PATIENCE_SECONDS)))
        return called["plan_bytes"] + called["respond_bytes"]


def _prompt(turns: int) -> int:
    """Tokens that an LLM is sent for a plan, if a client brings along all turns."""
    said = tuple(Turn(by_user=number % 2 == 0, text=f"{number}: {SAID}") for number in range(2 * turns - 1))
    estimate = Estimate()
    asked = Prompting().planning(Request(said), standard_specs(), PROMPT_TOKENS, estimate.tokens)
    return estimate.prompt(asked.messages)
