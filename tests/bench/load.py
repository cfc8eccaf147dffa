"""Client that starts runs at the orchestrator directly and parses only their last event."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RunMode, RunSpec
from services.common.channel import connect
from tests.bench.shapes import Script

TIMEOUT_SECONDS = 120.0


class Client:
    """Client of an orchestrator that sends and receives serialized messages."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._run: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
            "/hugginggpt.internal.v1.OrchestratorService/CreateRun"
        )

    async def run(self, request: bytes) -> float:
        """Makes one run, and returns the seconds from the request to the last event.

        Raises:
            RuntimeError: the run did not complete.
        """
        started, last = time.perf_counter(), b""
        async for event in self._run(request, timeout=TIMEOUT_SECONDS):
            last = event
        taken = time.perf_counter() - started
        ended = RunEvent.FromString(last).run_ended
        if ended.state != RUN_STATE_COMPLETED:
            raise RuntimeError(f"a run of the benchmark failed: {ended.failure.message}")
        return taken


@asynccontextmanager
async def connected_client(address: str) -> AsyncIterator[Client]:
    async with connect(address) as channel:
        yield Client(channel)


def planned_run(script: Script) -> bytes:
    """Serialized request for a run that the scripted planner plans."""
    return CreateRunRequest(spec=RunSpec(request=script.request, bypass_memo=True)).SerializeToString()


def supplied_run(script: Script, mode: "RunMode.ValueType") -> bytes:
    """Serialized request for a run of a supplied plan."""
    return CreateRunRequest(spec=RunSpec(plan=script.plan_message(), mode=mode, bypass_memo=True)).SerializeToString()


async def per_second(call: Callable[[], Awaitable[object]], *, callers: int, count: int) -> float:
    """Makes calls, and returns their rate.

    Args:
        call: makes one call.
        callers: concurrent callers, each with one call at a time.
        count: total number of calls.
    """
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await call()

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return count / (time.perf_counter() - started)


async def steady_rate(call: Callable[[], Awaitable[object]], *, callers: int, count: int) -> float:
    """Makes calls, and returns their rate while all callers are busy.

    The time counts from the end of as many calls as there are callers, and until `count` further ones have ended.

    Args:
        call: makes one call.
        callers: concurrent callers, each with one call at a time.
        count: calls that are counted.
    """
    ended: list[float] = []

    async def caller() -> None:
        while len(ended) < callers + count:
            await call()
            ended.append(time.perf_counter())

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return count / (ended[callers + count - 1] - ended[callers - 1])
