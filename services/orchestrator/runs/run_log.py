"""A run this process owns: its events are numbered here, kept, and only then shown."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass

import structlog

from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RunState
from services.common.change_signal import ChangeSignal
from services.common.errors import Unavailable
from services.orchestrator.batches.items import settled
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.journal.tables import Memo
from services.orchestrator.runs.budget import Spending
from services.orchestrator.runs.run_state import RunView

log = structlog.get_logger(__name__)

JOURNAL_PAUSE_SECONDS = 0.5
"""How long a journal that does not answer is left alone."""


BEHIND_SECONDS = 1.0
"""How long an event may wait for its commit before nothing new begins in its run."""

GATHER_SECONDS = 0.05
"""How long events of a batch's item wait for more, to be kept together: its end waits for nothing."""

CANCELLED = Failure(reason="CANCELLED", code="CANCELLED", message="the run was cancelled")


class Feed:
    """Events of a run that have been kept, for any number of watchers at their own pace."""

    def __init__(self, events: Iterable[RunEvent]) -> None:
        self._events = list(events)
        self._changed = ChangeSignal()
        self._closed = False

    @property
    def over(self) -> bool:
        """The run has ended, and that is kept."""
        return self._events[-1].HasField("run_ended")

    def publish(self, events: Sequence[RunEvent]) -> None:
        self._events.extend(events)
        self._changed.notify()

    def close(self) -> None:
        """No more will come from here, though the run may not have ended."""
        self._closed = True
        self._changed.notify()

    async def after(self, sequence: int) -> AsyncGenerator[RunEvent]:
        """Events numbered above sequence, to the run's end or as long as it is here."""
        while True:
            version = self._changed.version
            while sequence < len(self._events):
                yield self._events[sequence]
                sequence += 1
            if self._closed or self.over:
                return
            await self._changed.wait(version)


@dataclass(frozen=True)
class _Batch:
    """Events to be kept together, and what they lead to: later ones are not to show in it, however late it is kept."""

    events: Sequence[RunEvent]
    memos: Sequence[Memo]
    state: "RunState.ValueType"
    deadline: float | None
    """The run's from now on, if that has changed."""

    @property
    def parked_until(self) -> float | None:
        """When the run is taken up again even if nobody asks for it, if nobody is to drive it before."""
        last = self.events[-1]
        if not last.HasField("approval_requested"):
            return None
        return last.approval_requested.expire_time.ToNanoseconds() / 1e9

    @property
    def last(self) -> bool:
        """The run is driven no further."""
        return self.events[-1].HasField("run_ended") or self.parked_until is not None


class LiveRun:
    """A run under way.

    Args:
        journal: where its events go.
        run_id: the run.
        fence: under which this owner may write.
        caller: on whose behalf it runs; its deadline is the run's.
        events: those already kept.
    """

    def __init__(self, journal: Journal, run_id: str, fence: int, caller: Caller, events: Sequence[RunEvent]) -> None:
        self.id = run_id
        self.caller = caller
        self.trace = events[0].run_accepted.trace
        self.view = RunView(events)
        self.of_batch = bool(self.view.run.batch.index)
        """Whether it is an item's."""
        self.feed = Feed(events)
        self.fence = fence
        self.bytes = sum(event.ByteSize() for event in events)
        """What its events take."""
        self.work: asyncio.Task[Failure | None] | None = None
        self.cancelled: Failure | None = None
        """Why it was told to stop."""
        self.stopped: Failure | None = None
        """Why it was told to end with what it has."""
        self.approval: bytes | None = None
        """The ApproveRunRequest that lets its waiting plan run."""
        self._clock_offset = time.monotonic() - time.time()
        self._journal = journal
        self._outbox: list[RunEvent] = []
        self._stirred = asyncio.Event()
        """Something waits to be kept."""
        self._memos: list[Memo] = []
        self._writing: asyncio.Future[None] | None = None
        self._behind_since: float | None = None
        self._caught_up = asyncio.Event()
        self._spending = Spending(self.view.run.spec.budget, events, self.stop)

    @property
    def deadline(self) -> float:
        """When it must have ended, in seconds since the epoch."""
        return self.caller.deadline.ToNanoseconds() / 1e9

    @property
    def seconds_left(self) -> float:
        """Until its deadline, however the system's clock is set meanwhile."""
        return self.deadline + self._clock_offset - time.monotonic()

    def emit(self, event: RunEvent, memo: Memo | None = None) -> None:
        """Numbers an event and hands it to the journal, with a result to be found again by other runs."""
        event.run_id = self.id
        event.sequence = self.view.run.last_sequence + 1
        event.time.FromNanoseconds(time.time_ns())
        self.view.apply(event)
        self.bytes += event.ByteSize()
        self._outbox.append(event)
        self._stir(event)
        if self._behind_since is None:
            self._behind_since = time.monotonic()
            self._caught_up.clear()
        if memo:
            self._memos.append(memo)
        self._spending.saw(event)

    def cancel(self, why: Failure = CANCELLED) -> None:
        """Stops the work; what has finished is kept."""
        self.cancelled = self.cancelled or why
        if self.work:
            self.work.cancel()

    def stop(self, why: Failure) -> None:
        """Ends the work with what there is."""
        if not self.stopped:
            self.stopped = why
            if self.work:
                self.work.cancel()

    async def startable(self) -> None:
        """Waits while the journal takes nothing: what is under way then ends in memory, and nothing new begins."""
        await self._journal.taking.wait()
        if self._behind_since is not None and time.monotonic() - self._behind_since > BEHIND_SECONDS:
            await self._caught_up.wait()

    async def keep(self) -> None:
        """Writes events as they come, many at once where they come fast; ends with the run, or when it is parked.

        Raises:
            LeaseLost: another orchestrator owns the run.
        """
        ended = False
        while not ended:
            await self._stirred.wait()
            self._stirred.clear()
            if not (batch := self._batch()).events:
                continue
            await self._append(batch)
            self._behind_since = time.monotonic() if self._outbox else None
            if self._behind_since is None:
                self._caught_up.set()
            self.feed.publish(batch.events)
            ended = batch.last

    async def let_go(self) -> None:
        """Keeps what has happened so far, for the next owner to start from; nothing is written after it."""
        try:
            with contextlib.suppress(Unavailable):
                if self._writing:
                    await self._writing
                if (batch := self._batch()).events:
                    await self._write(batch)
        finally:
            self.feed.close()

    def _stir(self, event: RunEvent) -> None:
        """Has an event kept: at once, or in a moment where nobody in particular looks on."""
        if not self.of_batch or event.HasField("run_ended"):
            self._stirred.set()
        elif len(self._outbox) == 1:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._stirred.set)

    def _batch(self) -> _Batch:
        """All that has happened and is not being kept yet."""
        events, self._outbox = self._outbox, []
        memos, self._memos = self._memos, []
        approved = any(event.HasField("plan_approved") for event in events)
        return _Batch(events, memos, self.view.run.state, self.deadline if approved else None)

    async def _append(self, batch: _Batch) -> None:
        while True:
            try:
                await self._write(batch)
            except LeaseLost:
                raise
            except Unavailable as error:
                log.warning("the journal does not take events", run_id=self.id, error=error.message)
                await asyncio.sleep(JOURNAL_PAUSE_SECONDS)
            else:
                return

    async def _write(self, batch: _Batch) -> None:
        self._writing = self._journal.append(
            self.id,
            self.fence,
            batch.events,
            batch.state,
            memos=batch.memos,
            more=settled(self.view.run) if batch.events[-1].HasField("run_ended") else (),
            parked_until=batch.parked_until,
            deadline=batch.deadline,
            caller=self.caller if batch.deadline else None,
        )
        await asyncio.shield(self._writing)  # whoever lets go waits for it
