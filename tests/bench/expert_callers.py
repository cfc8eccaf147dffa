"""Load generator for one expert, which sends and receives serialized messages to use little CPU itself."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import grpc

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, PRIORITY_INTERACTIVE, Caller
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.common import call_context
from services.common.channel import dial

TIMEOUT_SECONDS = 120.0
TEXT = {"text": Value(text="a few words")}


class ExpertCaller:
    """Sends one fixed request to a model of an expert.

    Args:
        channel: to the expert.
        model: its id.
        task: of the request.
        inputs: of the request.
        background: uses the priority of batches.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        model: str,
        *,
        task: str,
        inputs: Mapping[str, Value] = TEXT,
        background: bool = False,
    ) -> None:
        self._infer: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/hugginggpt.v1.ExpertService/Infer"
        )
        self._request = InferRequest(task=task, model=model, inputs=inputs).SerializeToString()
        priority = PRIORITY_BATCH if background else PRIORITY_INTERACTIVE
        with call_context.use_caller(Caller(tenant="default", priority=priority)):
            self._metadata = call_context.metadata()

    async def call(self) -> float:
        """Makes one call, and returns its seconds."""
        started = time.perf_counter()
        await self._infer(self._request, timeout=TIMEOUT_SECONDS, metadata=self._metadata)
        return time.perf_counter() - started

    async def run_sequentially(self, count: int) -> list[float]:
        """Seconds of calls made one after the other."""
        return [await self.call() for _ in range(count)]

    async def run_open_loop(self, per_second: float, count: int) -> list[float]:
        """Seconds of calls that start at random times with this mean rate, independent of replies."""
        rng, calls = random.Random(1), list[asyncio.Task[float]]()
        for _ in range(count):
            calls.append(asyncio.create_task(self.call()))
            await asyncio.sleep(rng.expovariate(per_second))
        return await asyncio.gather(*calls)

    @asynccontextmanager
    async def sustained_load(self, callers: int) -> AsyncIterator[None]:
        """Keeps this many callers busy, each with one call at a time, until the block ends."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._repeat()) for _ in range(callers)]
            yield
            for task in tasks:
                task.cancel()

    async def _repeat(self) -> None:
        while True:
            await self.call()


@asynccontextmanager
async def open_channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with dial(address) as channel:
        await channel.channel_ready()
        yield channel
