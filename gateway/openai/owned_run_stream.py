"""A run on behalf of a client: whether it ends when the client leaves, and whether it is kept."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
from starlette.types import Receive

from gateway.http.sse import disconnected
from gateway.run_stream import RunEventFeed
from gateway.runs import Runs
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)

ENDING_SECONDS = 10.0
"""How long a run that was told to stop may take to do so, before one stops waiting for it."""


class Source(Protocol):
    """Where a run's events come from."""

    @property
    def run_id(self) -> str: ...

    @property
    def ended(self) -> bool: ...

    async def read(self) -> RunEvent | None: ...

    async def close(self) -> None: ...


class Watched:
    """A run one only looks at.

    Args:
        feed: its events.
        until: number of the last event that counts; 0 for the run's own last one.
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


class Attended(Watched):
    """A run that somebody waits for: it is cancelled when they leave, and may be forgotten once it has ended.

    Args:
        runs: where it is.
        feed: its events.
        keep: it can be looked at later.
    """

    def __init__(self, runs: Runs, feed: RunEventFeed, *, keep: bool) -> None:
        super().__init__(feed)
        self._runs = runs
        self._keep = keep

    async def close(self) -> None:
        self._feed.stop()
        try:
            if not self._feed.ended:
                await self._runs.cancel(self.run_id)
            if not self._keep:
                await stopped(self._runs, self.run_id)
                await self._runs.discard(self.run_id)
        except ServiceError as error:
            log.warning("a run was not tidied up", reason=error.reason, run_id=self.run_id)


class Recited:
    """Events that are all there."""

    def __init__(self, events: Sequence[RunEvent]) -> None:
        self.run_id = events[0].run_id
        self._events = list(events)
        self.ended = False

    async def read(self) -> RunEvent | None:
        event = self._events.pop(0) if self._events else None
        self.ended = not self._events
        return event

    async def close(self) -> None:
        """Nothing is open."""


async def followed(source: Source, take: Callable[[RunEvent], object], receive: Receive) -> bool:
    """Reads a run to its end, or until the client leaves; tells whether it came to its end.

    Raises:
        ServiceError: the events cannot be read.
    """
    reading, gone = asyncio.create_task(_read(source, take)), asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((reading, gone), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
        return reading.done()
    finally:
        reading.cancel()
        gone.cancel()
        await source.close()


async def stopped(runs: Runs, run_id: str) -> None:
    """Waits until a run that was told to stop has done so, though not for ever."""
    feed = await runs.watch(run_id, 0)
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            await _read(Watched(feed), lambda _: None)
    except TimeoutError:
        return
    finally:
        feed.stop()


async def _read(source: Source, take: Callable[[RunEvent], object]) -> None:
    while (event := await source.read()) is not None:
        take(event)
