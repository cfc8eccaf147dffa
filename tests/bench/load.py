"""Runs asked for at the orchestrator itself, by one client that reads no event but the last."""

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

PATIENCE_SECONDS = 120.0


class Client:
    """A caller of an orchestrator; what it sends and gets stays bytes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._run: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
            "/hugginggpt.internal.v1.OrchestratorService/CreateRun"
        )

    async def run(self, request: bytes) -> float:
        """Seconds from asking to the last event.

        Raises:
            RuntimeError: the run did not complete.
        """
        begun, last = time.perf_counter(), b""
        async for event in self._run(request, timeout=PATIENCE_SECONDS):
            last = event
        taken = time.perf_counter() - begun
        ended = RunEvent.FromString(last).run_ended
        if ended.state != RUN_STATE_COMPLETED:
            raise RuntimeError(f"a run of the benchmark failed: {ended.failure.message}")
        return taken


@asynccontextmanager
async def calling(address: str) -> AsyncIterator[Client]:
    async with connect(address) as channel:
        yield Client(channel)


def planned(script: Script) -> bytes:
    """Asks for a run that the cast plans."""
    return CreateRunRequest(spec=RunSpec(request=script.words, bypass_memo=True)).SerializeToString()


def supplied(script: Script, mode: "RunMode.ValueType") -> bytes:
    """Asks for a run of a plan that is there already."""
    return CreateRunRequest(spec=RunSpec(plan=script.supplied(), mode=mode, bypass_memo=True)).SerializeToString()


async def per_second(call: Callable[[], Awaitable[object]], *, callers: int, count: int) -> float:
    """Calls per second of so many callers, each with one call at a time, until there have been so many calls."""
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await call()

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return count / (time.perf_counter() - begun)
