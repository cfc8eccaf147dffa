"""A client that follows one run to its end through whichever replica answers, and trusts none of them."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import grpc

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.gateway_pb2 import ApproveRunRequest, CancelRunRequest, WatchRunRequest
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import call_context

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

STALL_SECONDS = 2.5
"""Without an event for so long, another replica is asked."""

PATIENCE_SECONDS = 90.0
"""A run that has not ended by then is lost."""

HASTY = 0.1
"""How many of those who ask for a run leave before they know that it was accepted, to ask again."""

_PASSING = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""What a client may be told of a run that is well: ask again."""

_WHO = call_context.metadata()


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
        self._moved = asyncio.Event()
        self.events: list[RunEvent] = []
        self.history: list[str] = []
        """What was asked of whom, when, and how it ended: for whoever looks into what went wrong."""
        self.left_run = False
        """It left a stream that asked for the run, by its own wish, before the run's end."""

    async def ask(self, spec: RunSpec) -> None:
        """Has a run accepted, again and again with its key until it knows, and follows it to its end.

        Raises:
            Unsound: the stream breaks a promise.
            TimeoutError: the run does not end.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            if self._random.random() < HASTY:
                await self._ask_hastily(spec)
            while not self.events:
                self.left_run |= not await self._read(CreateRunRequest(spec=spec))
                if not self.events:
                    self._tally["acceptance asked again"] += 1
            await self._follow()

    async def watch(self, run_id: str) -> None:
        """Follows a run from its first event to its last; raises what ask does."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._follow(run_id)

    async def reached(self, holds: Callable[[RunEvent], bool]) -> bool:
        """Waits for an event; False: there is none, and the run has ended."""
        seen = 0
        while True:
            moved = self._moved
            for event in self.events[seen:]:
                if holds(event):
                    return True
            seen = len(self.events)
            if self.ended:
                return False
            await moved.wait()

    async def cancel(self) -> None:
        """Asks for the run's end, until a replica has heard it."""
        request = CancelRunRequest(run_id=self.events[0].run_id)
        await self._told(lambda door: door.CancelRun(request, timeout=STALL_SECONDS, metadata=_WHO))

    async def approve(self, plan: Plan | None) -> None:
        """Lets the waiting plan run, or another in its place, until a replica has heard it."""
        request = ApproveRunRequest(run_id=self.events[0].run_id, plan=plan)
        await self._told(lambda door: door.ApproveRun(request, timeout=STALL_SECONDS, metadata=_WHO))

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1].HasField("run_ended")

    def _door(self) -> "OrchestratorServiceAsyncStub":
        return self._random.choice(self._doors)

    async def _ask_hastily(self, spec: RunSpec) -> None:
        call: Any = self._door().CreateRun(CreateRunRequest(spec=spec), timeout=PATIENCE_SECONDS, metadata=_WHO)
        self._tally["left before acceptance"] += 1
        self.left_run = True
        try:
            async with asyncio.timeout(self._random.uniform(0, 0.03)):
                await call.wait_for_connection()
        except (TimeoutError, grpc.aio.AioRpcError):
            pass
        finally:
            call.cancel()

    async def _told(self, said: "Callable[[OrchestratorServiceAsyncStub], Awaitable[object]]") -> None:
        while True:
            try:
                await said(self._door())
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:  # it was heard before, or the run has ended
                    return
                await self._passing(error)
            else:
                return

    async def _follow(self, run_id: str = "") -> None:
        while not self.ended:
            run_id = run_id or self.events[0].run_id
            request = WatchRunRequest(run_id=run_id, after_sequence=len(self.events))
            await self._read(request)
            self._tally["watched again"] += not self.ended

    async def _read(self, request: CreateRunRequest | WatchRunRequest) -> bool:
        """Takes what a stream gives; whether the stream ended by itself."""
        door = self._door()
        method: Any = door.CreateRun if isinstance(request, CreateRunRequest) else door.WatchRun
        call = method(request, timeout=PATIENCE_SECONDS, metadata=_WHO)
        self._note(f"asks replica {self._doors.index(door) + 1} for what follows event {len(self.events)}")
        try:
            while True:
                async with asyncio.timeout(STALL_SECONDS):
                    event = await call.read()
                if event is grpc.aio.EOF:
                    self._note("the stream has ended")
                    if not self.ended:
                        raise Unsound("a stream ended well before its run did")
                    return True
                self._take(event)
                if self._random.random() < self._leaves:
                    self._tally["left a stream"] += 1
                    return False
        except TimeoutError:
            self._tally["left a silent stream"] += 1
            self._note("leaves a silent stream")
            return False
        except grpc.aio.AioRpcError as error:
            await self._passing(error)
            return True
        finally:
            call.cancel()

    def _take(self, event: RunEvent) -> None:
        if self.ended:
            raise Unsound(f"event {event.sequence} came after the run's end")
        if event.sequence != len(self.events) + 1:
            raise Unsound(f"event {event.sequence} came after event {len(self.events)}")
        self.events.append(event)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def _passing(self, error: grpc.aio.AioRpcError) -> None:
        if error.code() not in _PASSING:
            raise Unsound(f"a replica said {error.code().name}: {error.details()}") from error
        self._tally[f"told {error.code().name}"] += 1
        self._note(f"told {error.code().name}: {error.details()}")
        await asyncio.sleep(self._random.uniform(0.05, 0.2))

    def _note(self, what: str) -> None:
        self.history.append(f"{time.time():.3f} {what}")
