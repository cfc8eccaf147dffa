"""Cost of a turn as its conversation grows to 500 turns, and bytes and tokens sent to planner, responder and LLM."""

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
from services.llm.token_budget import TokenEstimator
from services.planner.llm.prompt import PlanPromptBuilder
from services.planner.request import Request, Turn
from services.planner.task_spec import standard_specs
from tests.bench.curves import Curve, Measured, Point
from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.processes import Testbed, start_testbed
from tests.bench.rows import Row
from tests.bench.scripted_services import TALLY
from tests.bench.shapes import NAMED, Script

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

CONVERSATIONS = 4
ENDS = (4, 20, 100, 500)
"""Numbers of turns after which values are taken."""
EXPONENT = 0.5
GROWTH_MB = 15
REQUEST = Script("single", 1).request
PROMPT_TOKENS = 8_000
"""Token budget of the prompt."""
TEXT = "And what would the second of the three summaries say, if it were half as long?"


@dataclass(frozen=True)
class Stretch:
    """Mean values of a stretch of turns in every conversation.

    Attributes:
        end: number of the last turn.
        cpu: CPU milliseconds of the orchestrator per turn.
        sent: bytes sent to planner and responder per turn.
    """

    end: int
    cpu: float
    sent: float


async def rows() -> list[Measured]:
    """Figures of conversations stored by the orchestrator, and of the prompts for an LLM."""
    with TemporaryDirectory() as home:
        async with start_testbed(Path(home)) as testbed, connect(testbed.orchestrator.address) as channel:
            conversations = _Conversations(testbed, OrchestratorServiceStub(channel))
            await conversations.until(ENDS[0])
            before = await testbed.orchestrator.resident_mb()
            conversations.start()
            stretches = [await conversations.until(end) for end in ENDS]
            grown = await testbed.orchestrator.resident_mb() - before
    cpu = _curve("cpu", "A turn", "CPU ms of the orchestrator", [(one.end, one.cpu) for one in stretches])
    sent = _curve("sent", "Messages to planner and responder", "bytes", [(one.end, one.sent) for one in stretches])
    prompts = _curve("prompt", "The prompt of a plan", "tokens", [(end, _prompt(end)) for end in ENDS])
    note = f"of the orchestrator, by {CONVERSATIONS} conversations of {ENDS[-1]} turns; scripted planner, {NAMED}"
    curves = (cpu, sent, prompts)
    fitted = [row for curve in curves for row in curve.exponents(EXPONENT)]
    return [*fitted, Row("scale.conversations_growth_mb", round(grown, 1), "MB", GROWTH_MB, note=note), *curves]


def _curve(kind: str, subject: str, unit: str, points: Sequence[Point]) -> Curve:
    title = f"{subject} by the turns of the conversation"
    return Curve(f"scale.conversations_{kind}", title, "turns", unit, {"turn": points})


@dataclass
class _Conversations:
    """Concurrent conversations at an orchestrator."""

    testbed: Testbed
    stub: "OrchestratorServiceAsyncStub"
    _parents: list[str] = field(default_factory=lambda: [""] * CONVERSATIONS)
    _turns: int = 0

    def start(self) -> None:
        """Starts new conversations."""
        self._parents, self._turns = [""] * CONVERSATIONS, 0

    async def until(self, end: int) -> Stretch:
        """Continues every conversation to this number of turns."""
        turns = CONVERSATIONS * (end - self._turns)
        before, cpu = await self._bytes_sent(), self.testbed.orchestrator.cpu_seconds()
        async with asyncio.TaskGroup() as group:
            for index in range(CONVERSATIONS):
                group.create_task(self._continue(index, end - self._turns))
        self._turns = end
        sent = await self._bytes_sent() - before
        used = self.testbed.orchestrator.cpu_seconds() - cpu
        return Stretch(end, 1000 * used / turns, sent / turns)

    async def _continue(self, index: int, turns: int) -> None:
        for _ in range(turns):
            spec = RunSpec(request=REQUEST, parent_run_id=self._parents[index], bypass_memo=True)
            async for event in self.stub.CreateRun(CreateRunRequest(spec=spec), timeout=TIMEOUT_SECONDS):
                last = event
            if last.run_ended.state != RUN_STATE_COMPLETED:
                raise RuntimeError(f"a turn of the benchmark failed: {last.run_ended.failure.message}")
            self._parents[index] = last.run_id

    async def _bytes_sent(self) -> int:
        async with connect(self.testbed.scripted.address) as channel:
            tally: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(TALLY)
            called = Counter[str](json.loads(await tally(b"", timeout=TIMEOUT_SECONDS)))
        return called["plan_bytes"] + called["respond_bytes"]


def _prompt(turns: int) -> int:
    """Tokens of a planner's prompt if a client sends all turns."""
    history = tuple(Turn(by_user=number % 2 == 0, text=f"{number}: {TEXT}") for number in range(2 * turns - 1))
    estimate = TokenEstimator()
    prompt = PlanPromptBuilder().planning_prompt(Request(history), standard_specs(), PROMPT_TOKENS, estimate.tokens)
    return estimate.prompt(prompt.messages)
