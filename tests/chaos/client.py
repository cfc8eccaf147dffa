"""Client that follows a run to its end through any replica, and checks the consistency of the event stream."""

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
"""After this time without an event, the client tries another replica."""

RUN_TIMEOUT_SECONDS = 90.0
"""A run that has not ended by then counts as lost."""

IMPATIENT_SHARE = 0.1
"""Share of clients that disconnect before the run's acceptance is known, and send the request again."""

_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""Status codes after which a client retries; they do not mean that the run is wrong."""

_METADATA = call_context.metadata()


class ProtocolViolation(Exception):
    """A replica violated the guarantees of the event stream."""


class Client:
    """Makes or watches a run, and checks its event stream.

    Args:
        replicas: stubs of the orchestrators.
        random: selects replicas and disconnects.
        tally: counts reconnects and status codes.
        leave_share: probability of disconnecting after an event, to watch again.
    """

    def __init__(
        self,
        replicas: "Sequence[OrchestratorServiceAsyncStub]",
        random: Random,
        tally: Counter[str],
        *,
        leave_share: float = 0.0,
    ) -> None:
        self._replicas = replicas
        self._random = random
        self._tally = tally
        self._leave_share = leave_share
        self._changed = asyncio.Event()
        self.events: list[RunEvent] = []
        self.history: list[str] = []
        """Calls with their times, replicas and results, for diagnosis."""
        self.left_stream = False
        """True if the client has left the stream of its Run call before the run's end."""

    async def run(self, spec: RunSpec) -> None:
        """Sends a run with its idempotency key until it is accepted, and follows it to its end.

        Raises:
            ProtocolViolation: the event stream is inconsistent.
            TimeoutError: the run does not end.
        """
        async with asyncio.timeout(RUN_TIMEOUT_SECONDS):
            if self._random.random() < IMPATIENT_SHARE:
                await self._run_impatiently(spec)
            while not self.events:
                self.left_stream |= not await self._read(CreateRunRequest(spec=spec))
                if not self.events:
                    self._tally["run sent again"] += 1
            await self._follow()

    async def watch(self, run_id: str) -> None:
        """Follows a run from its first event to its last; raises the errors of `run`."""
        async with asyncio.timeout(RUN_TIMEOUT_SECONDS):
            await self._follow(run_id)

    async def wait_for(self, condition: Callable[[RunEvent], bool]) -> bool:
        """Waits for an event that meets the condition; False if the run has ended without one."""
        seen = 0
        while True:
            changed = self._changed
            for event in self.events[seen:]:
                if condition(event):
                    return True
            seen = len(self.events)
            if self.ended:
                return False
            await changed.wait()

    async def cancel(self) -> None:
        """Cancels the run, with retries until a replica has accepted the command."""
        request = CancelRunRequest(run_id=self.events[0].run_id)
        await self._send(lambda replica: replica.CancelRun(request, timeout=STALL_SECONDS, metadata=_METADATA))

    async def approve(self, plan: Plan | None) -> None:
        """Approves the plan, or another one instead, with retries until a replica has accepted the command."""
        request = ApproveRunRequest(run_id=self.events[0].run_id, plan=plan)
        await self._send(lambda replica: replica.ApproveRun(request, timeout=STALL_SECONDS, metadata=_METADATA))

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1].HasField("run_ended")

    def _replica(self) -> "OrchestratorServiceAsyncStub":
        return self._random.choice(self._replicas)

    async def _run_impatiently(self, spec: RunSpec) -> None:
        call: Any = self._replica().CreateRun(
            CreateRunRequest(spec=spec), timeout=RUN_TIMEOUT_SECONDS, metadata=_METADATA
        )
        self._tally["left before acceptance"] += 1
        self.left_stream = True
        try:
            async with asyncio.timeout(self._random.uniform(0, 0.03)):
                await call.wait_for_connection()
        except (TimeoutError, grpc.aio.AioRpcError):
            pass
        finally:
            call.cancel()

    async def _send(self, command: "Callable[[OrchestratorServiceAsyncStub], Awaitable[object]]") -> None:
        while True:
            try:
                await command(self._replica())
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:  # accepted before, or the run has ended
                    return
                await self._wait_and_retry(error)
            else:
                return

    async def _follow(self, run_id: str = "") -> None:
        while not self.ended:
            run_id = run_id or self.events[0].run_id
            request = WatchRunRequest(run_id=run_id, after_sequence=len(self.events))
            await self._read(request)
            self._tally["watched again"] += not self.ended

    async def _read(self, request: CreateRunRequest | WatchRunRequest) -> bool:
        """Reads a stream; returns False if the client has left it."""
        replica = self._replica()
        method: Any = replica.CreateRun if isinstance(request, CreateRunRequest) else replica.WatchRun
        call = method(request, timeout=RUN_TIMEOUT_SECONDS, metadata=_METADATA)
        self._note(f"replica {self._replicas.index(replica) + 1}: stream after event {len(self.events)}")
        try:
            while True:
                async with asyncio.timeout(STALL_SECONDS):
                    event = await call.read()
                if event is grpc.aio.EOF:
                    self._note("stream ended")
                    if not self.ended:
                        raise ProtocolViolation("a stream ended with OK before its run")
                    return True
                self._append(event)
                if self._random.random() < self._leave_share:
                    self._tally["left a stream"] += 1
                    return False
        except TimeoutError:
            self._tally["left a stalled stream"] += 1
            self._note("leaves a stalled stream")
            return False
        except grpc.aio.AioRpcError as error:
            await self._wait_and_retry(error)
            return True
        finally:
            call.cancel()

    def _append(self, event: RunEvent) -> None:
        if self.ended:
            raise ProtocolViolation(f"event {event.sequence} came after the run's end")
        if event.sequence != len(self.events) + 1:
            raise ProtocolViolation(f"event {event.sequence} came after event {len(self.events)}")
        self.events.append(event)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _wait_and_retry(self, error: grpc.aio.AioRpcError) -> None:
        if error.code() not in _TRANSIENT:
            raise ProtocolViolation(f"a replica returned {error.code().name}: {error.details()}") from error
        self._tally[f"status {error.code().name}"] += 1
        self._note(f"status {error.code().name}: {error.details()}")
        await asyncio.sleep(self._random.uniform(0.05, 0.2))

    def _note(self, text: str) -> None:
        self.history.append(f"{time.time():.3f} {text}")
