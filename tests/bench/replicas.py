"""How many requests wait for a model to be loaded, where three replicas have room for three of eight models each."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, RunSpec
from services.common.channel import connect, dial
from tests.bench.load import PATIENCE_SECONDS, per_second
from tests.bench.memory_limited_experts import HELD, LOADED, MODELS, REPLICAS, ROOM
from tests.bench.processes import staged
from tests.bench.rows import Row
from tests.bench.shapes import SEED, Script

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub
    from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceAsyncStub

REQUESTS = 10_000
PLAN = 1_000
RUNS_AT_ONCE = 4
CALLERS = 64
PERCENT = 2


async def rows() -> list[Row]:
    """Requests for all models alike: first by turns, then as the orchestrator sends them, to replicas made anew."""
    async with _stage() as (_, shelves):
        by_turns = await _by_turns(shelves)
    async with _stage() as (orchestrator, _):
        chosen = await _chosen(orchestrator)
    note = f"{REQUESTS:,} for {len(MODELS)} models, {REPLICAS} replicas with room for {ROOM}; reference: round robin"
    return [Row("replicas.loads_percent", chosen, "%", PERCENT, by_turns, note)]


@asynccontextmanager
async def _stage() -> "AsyncIterator[tuple[OrchestratorServiceAsyncStub, list[ExpertServiceAsyncStub]]]":
    async with AsyncExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory())
        stage = await stack.enter_async_context(staged(Path(home)))
        orchestrator = await stack.enter_async_context(connect(stage.orchestrator.address))
        shelves = [await stack.enter_async_context(dial(address)) for address in stage.cast.shelves]
        yield OrchestratorServiceStub(orchestrator), [ExpertServiceStub(shelf) for shelf in shelves]


async def _by_turns(shelves: "list[ExpertServiceAsyncStub]") -> float:
    dice, turn, loads = random.Random(SEED), count(), 0

    async def ask() -> None:
        nonlocal loads
        call = InferRequest(model=dice.choice(MODELS))
        reply = await shelves[next(turn) % len(shelves)].Infer(call, timeout=PATIENCE_SECONDS)
        loads += reply.outputs["text"].text == LOADED

    await per_second(ask, callers=CALLERS, count=REQUESTS)
    return _percent(loads)


async def _chosen(orchestrator: "OrchestratorServiceAsyncStub") -> float:
    dice, done = random.Random(SEED), Counter[str]()

    async def ask() -> None:
        spec = RunSpec(plan=_plan(dice), mode=RUN_MODE_RESULTS, bypass_memo=True)
        async for event in orchestrator.CreateRun(CreateRunRequest(spec=spec), timeout=PATIENCE_SECONDS):
            if event.HasField("task_ended"):
                done[event.task_ended.result.outputs["text"].text] += 1

    await per_second(ask, callers=RUNS_AT_ONCE, count=REQUESTS // PLAN)
    if done[LOADED] + done[HELD] != REQUESTS:
        raise RuntimeError(f"not all tasks of the benchmark succeeded: {done}")
    return _percent(done[LOADED])


def _plan(dice: random.Random) -> Plan:
    plan = Script("wide", PLAN).supplied()
    for task in plan.tasks:
        task.pinned_model = dice.choice(MODELS)
    return plan


def _percent(loads: int) -> float:
    return round(100 * loads / REQUESTS, 2)
