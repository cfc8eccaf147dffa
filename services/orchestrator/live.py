"""A run this process owns: its events are numbered here, kept, and only then shown."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Sequence

import structlog

from protos.hugginggpt.v1.types_pb2 import Caller, Failure, RunEvent
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.view import RunView
from services.runtime.errors import Unavailable

log = structlog.get_logger(__name__)

JOURNAL_PAUSE_SECONDS = 0.5
"""How long a journal that does not answer is left alone."""


class Feed:
    """Events of a run that have been kept, for any number of watchers at their own pace."""

    def __init__(self, events: Iterable[RunEvent]) -> None:
        self._events = list(events)
        self._changed = asyncio.Event()
        self._closed = False

    def publish(self, events: Sequence[RunEvent]) -> None:
        self._events.extend(events)
        self._wake()

    def close(self) -> None:
        """No more will come from here, though the run has not ended."""
        self._closed = True
        self._wake()

    async def after(self, sequence: int) -> AsyncGenerator[RunEvent]:
        """Events numbered above sequence, to the run's end.

        Raises:
            Unavailable: the run goes on elsewhere.
        """
        while True:
            changed = self._changed
            while sequence < len(self._events):
                yield self._events[sequence]
                sequence += 1
            if self._events[-1].HasField("run_ended"):
                return
            if self._closed:
                raise Unavailable("this orchestrator no longer owns the run", remedy="watch it again")
            await changed.wait()

    def _wake(self) -> None:
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()


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
        self.view = RunView(events)
        self.feed = Feed(events)
        self.fence = fence
        self.work: asyncio.Task[Failure | None] | None = None
        self.cancel_asked = False
        self._journal = journal
        self._outbox: asyncio.Queue[RunEvent] = asyncio.Queue()

    @property
    def deadline(self) -> float:
        """When it must have ended, in seconds since the epoch."""
        return self.caller.deadline.ToNanoseconds() / 1e9

    def emit(self, event: RunEvent) -> None:
        """Numbers an event and hands it to the journal."""
        event.run_id = self.id
        event.sequence = self.view.run.last_sequence + 1
        event.time.FromNanoseconds(time.time_ns())
        self.view.apply(event)
        self._outbox.put_nowait(event)

    def cancel(self) -> None:
        """Stops the work; what has finished is kept."""
        self.cancel_asked = True
        if self.work:
            self.work.cancel()

    async def keep(self) -> None:
        """Writes events as they come, many at once where they come fast; ends with the run.

        Raises:
            LeaseLost: another orchestrator owns the run.
        """
        ended = False
        while not ended:
            batch = [await self._outbox.get(), *self._waiting()]
            await self._append(batch)
            self.feed.publish(batch)
            ended = batch[-1].HasField("run_ended")

    async def let_go(self) -> None:
        """Keeps what has happened so far, for the next owner to start from."""
        if batch := self._waiting():
            with contextlib.suppress(Unavailable):
                await self._journal.append(self.id, self.fence, batch, self.view.run.state)
        self.feed.close()

    def _waiting(self) -> list[RunEvent]:
        return [self._outbox.get_nowait() for _ in range(self._outbox.qsize())]

    async def _append(self, batch: Sequence[RunEvent]) -> None:
        state = self.view.run.state
        while True:
            try:
                return await self._journal.append(self.id, self.fence, batch, state)
            except LeaseLost:
                raise
            except Unavailable as error:
                log.warning("the journal does not take events", run_id=self.id, error=error.message)
                await asyncio.sleep(JOURNAL_PAUSE_SECONDS)
