"""A client that follows one run to its end through whichever replica answers, and trusts none of them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import grpc

from protos.hugginggpt.v1.orchestrator_pb2 import CancelRunRequest, RunRequest, WatchRunRequest
from protos.hugginggpt.v1.types_pb2 import RunEvent, RunSpec
from services.runtime import caller

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

STALL_SECONDS = 2.5
"""Without an event for so long, another replica is asked."""

PATIENCE_SECONDS = 90.0
"""A run that has not ended by then is lost."""

_PASSING = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""What a client may be told of a run that is well: ask again."""


class Unsound(Exception):
    """What a client was told cannot be."""


class Client:
    """Asks for a run or watches it, and holds its stream to what a stream must be.

    Args:
        doors: the replicas.
        random: which of them is asked, and when to leave.
        tally: counts what happens.
        leaves: how likely it leaves after an event, to watch again.
    """

    def __init__(
        self,
        doors: "Sequence[OrchestratorServiceAsyncStub]",
        random: Random,
        tally: Counter[str],
        *,
        leaves: float = 0.0,
    ) -> None:
        self._doors = doors
        self._random = random
        self._tally = tally
        self._leaves = leaves
        self.run_id = asyncio.get_running_loop().create_future()
        self.events: list[RunEvent] = []
        self.left_run = False
        """It left the stream that asked for the run, by its own wish, before the run's end."""

    async def ask(self, spec: RunSpec) -> None:
        """Has a run accepted, again and again with its key until it knows, and follows it to its end.

        Raises:
            Unsound: the stream breaks a promise.
            TimeoutError: the run does not end.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.events:
                call = self._door().Run(RunRequest(spec=spec), timeout=PATIENCE_SECONDS, metadata=_WHO)
                self.left_run |= not await self._read(call)
                if not self.events:
                    self._tally["acceptance asked again"] += 1
            await self._follow()

    async def watch(self, run_id: str) -> None:
        """Follows a run from its first event to its last; raises what ask does."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._follow(run_id)

    async def cancel(self, run_id: str, after: int) -> None:
        """Asks for the run's end once the client has seen so many events."""
        while len(self.events) < after and not self._ended:
            await asyncio.sleep(0.02)
        while True:
            try:
                await self._door().Cancel(CancelRunRequest(run_id=run_id), timeout=STALL_SECONDS, metadata=_WHO)
            except grpc.aio.AioRpcError as error:
                await self._passing(error)
            else:
                return

    @property
    def _ended(self) -> bool:
        return bool(self.events) and self.events[-1].HasField("run_ended")

    def _door(self) -> "OrchestratorServiceAsyncStub":
        return self._random.choice(self._doors)

    async def _follow(self, run_id: str = "") -> None:
        while not self._ended:
            run_id = run_id or self.events[0].run_id
            request = WatchRunRequest(run_id=run_id, after_sequence=len(self.events))
            await self._read(self._door().Watch(request, timeout=PATIENCE_SECONDS, metadata=_WHO))
            self._tally["watched again"] += not self._ended

    async def _read(self, call: Any) -> bool:
        """Takes what a stream gives; whether the stream ended by itself."""
        try:
            while True:
                async with asyncio.timeout(STALL_SECONDS):
                    event = await call.read()
                if event is grpc.aio.EOF:
                    if not self._ended:
                        raise Unsound("a stream ended well before its run did")
                    return True
                self._take(event)
                if self._random.random() < self._leaves:
                    self._tally["left a stream"] += 1
                    return False
        except TimeoutError:
            self._tally["left a silent stream"] += 1
            return False
        except grpc.aio.AioRpcError as error:
            await self._passing(error)
            return True
        finally:
            call.cancel()

    def _take(self, event: RunEvent) -> None:
        if self._ended:
            raise Unsound(f"event {event.sequence} came after the run's end")
        if event.sequence != len(self.events) + 1:
            raise Unsound(f"event {event.sequence} came after event {len(self.events)}")
        self.events.append(event)
        if not self.run_id.done():
            self.run_id.set_result(event.run_id)

    async def _passing(self, error: grpc.aio.AioRpcError) -> None:
        if error.code() not in _PASSING:
            raise Unsound(f"a replica said {error.code().name}: {error.details()}") from error
        self._tally[f"told {error.code().name}"] += 1
        await asyncio.sleep(self._random.uniform(0.05, 0.2))


_WHO = caller.metadata()
