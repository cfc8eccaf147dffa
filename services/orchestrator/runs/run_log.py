"""Event log of a run owned by this process: numbers events, writes them to the journal, then publishes them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass

import structlog
from google.rpc import code_pb2

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_AWAITING_APPROVAL, Run, RunState
from services.common.change_signal import ChangeSignal
from services.common.errors import Unavailable
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.journal.events import Memo
from services.orchestrator.journal.runs import RunRow
from services.orchestrator.runs.budget import BudgetTracker
from services.orchestrator.runs.result import item_result_rows

log = structlog.get_logger(__name__)

JOURNAL_PAUSE_SECONDS = 0.5
"""Pause before the next write to a journal that is unavailable."""

BEHIND_SECONDS = 1.0
"""Longest time that an event may wait for its commit before the run starts no new task."""

GATHER_SECONDS, RESULT_GATHER_SECONDS = 1.0, 0.05
"""How long events of a batch item wait for more, to be written together, and how long the result of a task waits; the
last event is written at once. A short item is so written once."""

CANCELLED = Failure(reason="CANCELLED", code=code_pb2.CANCELLED, message="the run was cancelled")


class EventFeed:
    """Stored events of a run, for any number of watchers, each at its own pace."""

    def __init__(self, events: Iterable[RunEvent]) -> None:
        self._events = list(events)
        self._changed = ChangeSignal()
        self._closed = False

    @property
    def has_ended(self) -> bool:
        """Whether the last event of the run is stored."""
        return self._events[-1].HasField("run_ended")

    def publish(self, events: Sequence[RunEvent]) -> None:
        self._events.extend(events)
        self._changed.notify()

    def close(self) -> None:
        """Ends the feed here, although the run may continue elsewhere."""
        self._closed = True
        self._changed.notify()

    async def after(self, sequence: int) -> AsyncGenerator[RunEvent]:
        """Events numbered above `sequence`, to the run's end or until the feed is closed."""
        while True:
            version = self._changed.version
            while sequence < len(self._events):
                yield self._events[sequence]
                sequence += 1
            if self._closed or self.has_ended:
                return
            await self._changed.wait(version)


@dataclass(frozen=True)
class _Write:
    """Events to store in one transaction, with the state after the last of them."""

    events: Sequence[RunEvent]
    memos: Sequence[Memo]
    state: "RunState.ValueType"
    deadline: float | None
    """The run's new deadline, if it has changed."""

    @property
    def parked_until(self) -> float | None:
        """When a parked run is claimed without a command, in seconds since the epoch; None if it is not parked."""
        last = self.events[-1]
        if not last.HasField("approval_requested"):
            return None
        return last.approval_requested.expire_time.ToNanoseconds() / 1e9

    @property
    def is_last(self) -> bool:
        """Whether the run ends or is parked with these events."""
        return self.events[-1].HasField("run_ended") or self.parked_until is not None


class RunLog:
    """A run owned by this process.

    Args:
        journal: stores its events.
        run_id: ID of the run.
        fence: fencing token of this owner.
        caller: on whose behalf it runs; its deadline is the run's.
        events: those already stored.
    """

    def __init__(self, journal: Journal, run_id: str, fence: int, caller: Caller, events: Sequence[RunEvent]) -> None:
        self.id = run_id
        self.caller = caller
        self.trace = events[0].run_accepted.trace
        self.fold = RunFold(events)
        self.is_batch_item = bool(self.fold.run.batch.index)
        """Whether the run is an item of a batch."""
        self.feed = EventFeed(events)
        self.fence = fence
        self.bytes = sum(event.ByteSize() for event in events)
        """Size of its events."""
        self.work: asyncio.Task[Failure | None] | None = None
        self.cancel_reason: Failure | None = None
        """Why the run is cancelled, if it is."""
        self.stop_reason: Failure | None = None
        """Why the run ends early with the results it has, if it does."""
        self.approval: bytes | None = None
        """The ApproveRunRequest for its plan."""
        self._clock_offset = time.monotonic() - time.time()
        self._journal = journal
        self._outbox: list[RunEvent] = []
        self._write_due = asyncio.Event()
        """Set when events are to be written."""
        self._memos: list[Memo] = []
        self._pending_write: asyncio.Future[None] | None = None
        self._behind_since: float | None = None
        self._caught_up = asyncio.Event()
        self._budget = BudgetTracker(self.fold.run.spec.budget, events, self.stop)

    @property
    def is_awaiting_approval(self) -> bool:
        """Whether the run is parked until its plan is approved."""
        return self.fold.run.state == RUN_STATE_AWAITING_APPROVAL

    @property
    def deadline(self) -> float:
        """The run's deadline, in seconds since the epoch."""
        return self.caller.deadline.ToNanoseconds() / 1e9

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, independent of changes of the system clock."""
        return self.deadline + self._clock_offset - time.monotonic()

    @property
    def is_behind(self) -> bool:
        """Whether an event has waited for its commit for longer than BEHIND_SECONDS since it was to be written."""
        return self._behind_since is not None and time.monotonic() - self._behind_since > BEHIND_SECONDS

    def emit(self, event: RunEvent, memo: Memo | None = None) -> None:
        """Numbers an event and schedules its write, with a result to store for reuse."""
        event.run_id = self.id
        event.sequence = self.fold.run.last_sequence + 1
        event.time.FromNanoseconds(time.time_ns())
        self.fold.apply(event)
        self.bytes += event.ByteSize()
        self._outbox.append(event)
        delay = self._schedule_write(event)
        if self._behind_since is None:
            self._behind_since = time.monotonic() + delay
            self._caught_up.clear()
        if memo:
            self._memos.append(memo)
        self._budget.add(event)

    def state_at(self, row: RunRow) -> Run | None:
        """The state of the run if it is that of the journal's row; None if events are not stored yet."""
        is_current = self.fence == row.fence and self.fold.run.last_sequence == row.last_sequence
        return self.fold.snapshot() if is_current else None

    def cancel(self, reason: Failure = CANCELLED) -> None:
        """Cancels the run; finished tasks keep their results."""
        self.cancel_reason = self.cancel_reason or reason
        if self.work:
            self.work.cancel()

    def stop(self, reason: Failure) -> None:
        """Ends the run early with the results it has."""
        if not self.stop_reason:
            self.stop_reason = reason
            if self.work:
                self.work.cancel()

    async def wait_until_writable(self) -> None:
        """Waits while the journal is behind: running tasks end in memory, and no new task starts."""
        await self._journal.accepting.wait()
        if self.is_behind:
            await self._caught_up.wait()

    async def write_events(self) -> None:
        """Writes events as they are emitted, several in one transaction; returns when the run ends or is parked.

        Raises:
            LeaseLost: another orchestrator owns the run.
        """
        ended = False
        while not ended:
            await self._write_due.wait()
            self._write_due.clear()
            if not (write := self._take_events()).events:
                continue
            await self._append(write)
            self._behind_since = time.monotonic() if self._outbox else None
            if self._behind_since is None:
                self._caught_up.set()
            self.feed.publish(write.events)
            ended = write.is_last

    async def release(self) -> None:
        """Flushes pending events so that the next owner can continue, and writes nothing afterwards."""
        try:
            with contextlib.suppress(Unavailable):
                if self._pending_write:
                    await self._pending_write
                if (write := self._take_events()).events:
                    await self._write(write)
        finally:
            self.feed.close()

    def _schedule_write(self, event: RunEvent) -> float:
        """Writes immediately, or later for batch items, whose events no client follows; returns after which time."""
        if not self.is_batch_item or event.HasField("run_ended"):
            self._write_due.set()
            return 0.0
        is_result = event.HasField("task_ended")
        delay = RESULT_GATHER_SECONDS if is_result else GATHER_SECONDS
        if len(self._outbox) == 1 or is_result:
            asyncio.get_running_loop().call_later(delay, self._write_due.set)
        return delay

    def _take_events(self) -> _Write:
        """Removes and returns all events that are not being written yet."""
        events, self._outbox = self._outbox, []
        memos, self._memos = self._memos, []
        approved = any(event.HasField("plan_approved") for event in events)
        return _Write(events, memos, self.fold.run.state, self.deadline if approved else None)

    async def _append(self, write: _Write) -> None:
        while True:
            try:
                await self._write(write)
            except LeaseLost:
                raise
            except Unavailable as error:
                log.warning("events not written: journal unavailable", run_id=self.id, error=error.message)
                await asyncio.sleep(JOURNAL_PAUSE_SECONDS)
            else:
                return

    async def _write(self, write: _Write) -> None:
        self._pending_write = self._journal.append(
            self.id,
            self.fence,
            write.events,
            write.state,
            memos=write.memos,
            more=item_result_rows(self.fold.run) if write.events[-1].HasField("run_ended") else (),
            snapshot=self.fold.snapshot() if write.is_last else None,
            parked_until=write.parked_until,
            deadline=write.deadline,
            caller=self.caller if write.deadline else None,
        )
        await asyncio.shield(self._pending_write)  # release() waits for it if this is cancelled
