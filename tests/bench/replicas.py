"""Share of requests that wait for a model load, with three replicas that hold three of eight models each."""

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
from tests.bench.load import TIMEOUT_SECONDS, per_second
from tests.bench.memory_limited_experts import CAPACITY, LOADED, MODELS, REPLICAS, RESIDENT
from tests.bench.processes import start_testbed
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
    """Requests for uniformly random models: round robin, then through the orchestrator, each to new replicas."""
    async with _testbed() as (_, replicas):
        reference = await _round_robin(replicas)
    async with _testbed() as (orchestrator, _):
        balanced = await _balanced(orchestrator)
    note = f"{REQUESTS:,} for {len(MODELS)} models, {REPLICAS} replicas that hold {CAPACITY}; reference: round robin"
    return [Row("replicas.loads_percent", balanced, "%", PERCENT, reference, note)]


@asynccontextmanager
async def _testbed() -> "AsyncIterator[tuple[OrchestratorServiceAsyncStub, list[ExpertServiceAsyncStub]]]":
    async with AsyncExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory())
        testbed = await stack.enter_async_context(start_testbed(Path(home)))
        orchestrator = await stack.enter_async_context(connect(testbed.orchestrator.address))
        replicas = [await stack.enter_async_context(dial(address)) for address in testbed.scripted.memory_limited]
        yield OrchestratorServiceStub(orchestrator), [ExpertServiceStub(replica) for replica in replicas]


async def _round_robin(replicas: "list[ExpertServiceAsyncStub]") -> float:
    """Percentage of calls that loaded a model, with calls sent to the replicas in turn."""
    rng, number, loads = random.Random(SEED), count(), 0

    async def call() -> None:
        nonlocal loads
        request = InferRequest(model=rng.choice(MODELS))
        reply = await replicas[next(number) % len(replicas)].Infer(request, timeout=TIMEOUT_SECONDS)
        loads += reply.outputs["text"].text == LOADED

    await per_second(call, callers=CALLERS, count=REQUESTS)
    return _percent(loads)


async def _balanced(orchestrator: "OrchestratorServiceAsyncStub") -> float:
    """Percentage of tasks that loaded a model, with replicas chosen by the orchestrator's load balancer."""
    rng, done = random.Random(SEED), Counter[str]()

    async def run() -> None:
        spec = RunSpec(plan=_plan(rng), mode=RUN_MODE_RESULTS, bypass_memo=True)
        async for event in orchestrator.CreateRun(CreateRunRequest(spec=spec), timeout=TIMEOUT_SECONDS):
            if event.HasField("task_ended"):
                done[event.task_ended.result.outputs["text"].text] += 1

    await per_second(run, callers=RUNS_AT_ONCE, count=REQUESTS // PLAN)
    if done[LOADED] + done[RESIDENT] != REQUESTS:
        raise RuntimeError(f"not all tasks of the benchmark succeeded: {done}")
    return _percent(done[LOADED])


def _plan(rng: random.Random) -> Plan:
    plan = Script("wide", PLAN).plan_message()
    for task in plan.tasks:
        task.pinned_model = rng.choice(MODELS)
    return plan


def _percent(loads: int) -> float:
    return round(100 * loads / REQUESTS, 2)
