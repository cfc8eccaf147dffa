"""Event sources of runs, and server-sent event streams that read them."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog
from starlette.types import Receive

from gateway.core.run_stream import RunEventFeed
from gateway.core.runs import RunOperations
from gateway.http.sse import HEARTBEAT_SECONDS, Stream, disconnected
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)

STOP_SECONDS = 10.0
"""Time to wait for the end of a cancelled run."""


CLIENT_CLOSED_REQUEST = 499
"""Status in the log after the client has disconnected, as in nginx."""


class EventSource(Protocol):
    """Source of a run's events."""

    @property
    def run_id(self) -> str: ...

    @property
    def ended(self) -> bool: ...

    async def read(self) -> RunEvent | None: ...

    async def close(self) -> None: ...


class WatchedRun:
    """A run that is only watched.

    Args:
        feed: events of the run.
        until: number of the last event to read; 0 to read to the end of the run.
    """

    def __init__(self, feed: RunEventFeed, until: int = 0) -> None:
        self._feed = feed
        self._until = until

    @property
    def run_id(self) -> str:
        return self._feed.run_id

    @property
    def ended(self) -> bool:
        return self._feed.ended or 0 < self._until <= self._feed.sequence

    async def read(self) -> RunEvent | None:
        return None if self.ended else await self._feed.read()

    async def close(self) -> None:
        self._feed.stop()


class OwnedRun(WatchedRun):
    """A run owned by a connection: cancelled when the client disconnects, and deleted afterwards unless stored.

    Args:
        runs: client of the orchestrator.
        feed: events of the run.
        keep: whether the run is stored.
    """

    def __init__(self, runs: RunOperations, feed: RunEventFeed, *, keep: bool) -> None:
        super().__init__(feed)
        self._runs = runs
        self._keep = keep

    async def close(self) -> None:
        self._feed.stop()
        try:
            if not self._feed.ended:
                await self._runs.cancel(self.run_id)
            if not self._keep:
                await wait_until_stopped(self._runs, self.run_id)
                await self._runs.discard(self.run_id)
        except ServiceError as error:
            log.warning("run not cleaned up", reason=error.reason, run_id=self.run_id)


class RecordedEvents:
    """A list of events."""

    def __init__(self, events: Sequence[RunEvent]) -> None:
        self.run_id = events[0].run_id
        self._events = list(events)
        self.ended = False

    async def read(self) -> RunEvent | None:
        event = self._events.pop(0) if self._events else None
        self.ended = not self._events
        return event

    async def close(self) -> None:
        """Does nothing."""


async def read_until_end(source: EventSource, take: Callable[[RunEvent], object], receive: Receive) -> bool:
    """Reads a run until its end or until the client disconnects; returns whether it reached the end.

    Raises:
        ServiceError: the events cannot be read.
    """
    reading, disconnection = asyncio.create_task(_read(source, take)), asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((reading, disconnection), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
        return reading.done()
    finally:
        reading.cancel()
        disconnection.cancel()
        await source.close()


async def wait_until_stopped(runs: RunOperations, run_id: str) -> None:
    """Waits for the end of a cancelled run, for at most STOP_SECONDS."""
    feed = await runs.watch(run_id, 0)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await _read(WatchedRun(feed), lambda _: None)
    except TimeoutError:
        return
    finally:
        feed.stop()


async def _read(source: EventSource, take: Callable[[RunEvent], object]) -> None:
    while (event := await source.read()) is not None:
        take(event)


class OpenAIStream(Stream):
    """A stream of server-sent events, rendered from the events of a run."""

    greeting = b": accepted\n"
    heartbeat = b": heartbeat\n"

    def __init__(
        self, source: EventSource, headers: Mapping[str, str], *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        super().__init__(headers, heartbeat_seconds=heartbeat_seconds)
        self._source = source

    async def next(self) -> tuple[bytes, bool]:
        """Reads until an event produces frames or the run ends."""
        try:
            while (event := await self._source.read()) is not None:
                frames = self.event_frames(event)
                if frames or self._source.ended:
                    return frames, self._source.ended
        except ServiceError as error:
            return self.error_frames(error), True
        return b"", True

    async def close(self) -> None:
        await self._source.close()

    @abstractmethod
    def event_frames(self, event: RunEvent) -> bytes:
        """Renders an event; empty if the client does not need it."""

    @abstractmethod
    def error_frames(self, error: ServiceError) -> bytes:
        """Renders the error that ends the stream early."""
