"""Callers of an expert: bytes go out and come back, so that little of what is measured is theirs."""

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

PATIENCE_SECONDS = 120.0
WORDS = {"text": Value(text="a few words")}


class Asker:
    """A client of one model of an expert, which it always asks the same."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        model: str,
        *,
        task: str,
        inputs: Mapping[str, Value] = WORDS,
        background: bool = False,
    ) -> None:
        self._infer: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/hugginggpt.v1.ExpertService/Infer"
        )
        self._request = InferRequest(task=task, model=model, inputs=inputs).SerializeToString()
        priority = PRIORITY_BATCH if background else PRIORITY_INTERACTIVE
        with call_context.use_caller(Caller(tenant="default", priority=priority)):
            self._metadata = call_context.metadata()

    async def ask(self) -> float:
        """Seconds that one call took."""
        begun = time.perf_counter()
        await self._infer(self._request, timeout=PATIENCE_SECONDS, metadata=self._metadata)
        return time.perf_counter() - begun

    async def in_turn(self, count: int) -> list[float]:
        """What calls take that are made one after the other."""
        return [await self.ask() for _ in range(count)]

    async def arriving(self, per_second: float, count: int) -> list[float]:
        """What calls take that come at random, so many a second, whether or not others have ended."""
        chance, calls = random.Random(1), list[asyncio.Task[float]]()
        for _ in range(count):
            calls.append(asyncio.create_task(self.ask()))
            await asyncio.sleep(chance.expovariate(per_second))
        return await asyncio.gather(*calls)

    @asynccontextmanager
    async def at_it(self, callers: int) -> AsyncIterator[None]:
        """So many callers, each with one call at a time, as long as the block lasts."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._on_and_on()) for _ in range(callers)]
            yield
            for task in tasks:
                task.cancel()

    async def _on_and_on(self) -> None:
        while True:
            await self.ask()


@asynccontextmanager
async def reaching(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with dial(address) as channel:
        await channel.channel_ready()
        yield channel
