"""Overhead of a run in addition to its experts' time, and the delay of its first event."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import httpx

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from protos.hugginggpt.v1.gateway_pb2 import CreateRunRequest
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RunSpec
from protos.hugginggpt.v1.task_pb2 import Argument, Reference, Task
from services.common.channel import connect, dial
from tests.bench.local_stack import TASK, LocalStack, start_local_stack
from tests.bench.rows import Row, median

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceAsyncStub

REPEATS = 30
WARM_UP = 5
LENGTH = 8


async def rows() -> list[Row]:
    """Figures of runs with an expert that returns at once, so that their whole time is overhead."""
    async with start_local_stack(experts="") as stack:
        return await _measure(stack)


async def _measure(stack: LocalStack) -> list[Row]:
    async with connect(stack.grpc) as gateway, dial(stack.expert) as expert:
        runs, direct = GatewayServiceStub(gateway), ExpertServiceStub(expert)
        request = InferRequest(task=TASK, inputs={"text": Value(text="one")})
        call_ms = 1000 * median(await _timed(lambda: direct.Infer(request, timeout=60)))
        one, chained, wide = [
            1000 * median(await _timed(partial(_run, runs, plan))) for plan in (_wide(1), _chain(), _wide(LENGTH))
        ]
        note = f"chain of {LENGTH} no-op tasks through the gateway; reference: one direct call"
        return [
            Row("run.overhead_per_task_ms", round(chained / LENGTH, 2), "ms", 10, round(call_ms, 2), note),
            Row(
                "run.overhead_per_task_wide_ms",
                round(wide / LENGTH, 2),
                "ms",
                10,
                round(call_ms, 2),
                f"{LENGTH} at once",
            ),
            Row("run.single_ms", round(one, 2), "ms", note="one no-op task, whole run with its response"),
            Row(
                "run.first_event_ms",
                round(1000 * median(await _first_events(stack)), 2),
                "ms",
                50,
                note="POST /v1/runs to its first event",
            ),
        ]


def _chain() -> Plan:
    first = Argument(value=Value(text="one two three"))
    refs = [Argument(reference=Reference(task_id=number, output="text")) for number in range(1, LENGTH)]
    return Plan(
        tasks=[
            Task(id=number, task=TASK, arguments={"text": text}) for number, text in enumerate([first, *refs], start=1)
        ]
    )


def _wide(width: int) -> Plan:
    text = Argument(value=Value(text="one two three"))
    return Plan(tasks=[Task(id=number, task=TASK, arguments={"text": text}) for number in range(1, width + 1)])


async def _timed(call: Callable[[], Awaitable[object]]) -> list[float]:
    """Seconds of each of REPEATS calls, after a warm-up."""
    taken = []
    for _ in range(WARM_UP + REPEATS):
        started = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - started)
    return taken[WARM_UP:]


async def _run(stub: "GatewayServiceAsyncStub", plan: Plan) -> None:
    events = [event async for event in stub.CreateRun(CreateRunRequest(spec=RunSpec(plan=plan)), timeout=60)]
    if events[-1].run_ended.state != RUN_STATE_COMPLETED:
        raise RuntimeError(f"a run of the benchmark failed: {events[-1].run_ended.failure.message}")


async def _first_events(stack: LocalStack) -> list[float]:
    async with httpx.AsyncClient(base_url=stack.url, timeout=60) as client:

        async def first() -> None:
            body = {"request": "Summarize: one two three."}
            headers = {"Accept": "text/event-stream"}
            async with client.stream("POST", "/v1/runs", json=body, headers=headers) as reply:
                async for line in reply.aiter_lines():
                    if line.startswith("data:"):
                        return
                raise RuntimeError(f"the stream had no event: status {reply.status_code}")

        return await _timed(first)
