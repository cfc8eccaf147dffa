"""Waits for the end of a run and reports its progress to the client."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.core.run_stream import RunEventFeed
from gateway.openai import progress_text
from services.common.errors import ServiceError

HEARTBEAT_SECONDS = 8.0
"""Longest interval without a report; clients may time out after ten seconds of silence."""

OnProgress = Callable[[float, str], Awaitable[None]]
"""Called with an increasing number and a description of the present step."""


async def wait_for_end(feed: RunEventFeed, seconds: float, on_progress: OnProgress) -> None:
    """Follows a run to its end, for at most `seconds`."""
    reporter = _ProgressReporter(feed, on_progress)
    reading = asyncio.create_task(reporter.read())
    try:
        async with asyncio.timeout(seconds):
            while not reading.done():
                await asyncio.wait((reading,), timeout=HEARTBEAT_SECONDS)
                if not reading.done():
                    await reporter.report(reporter.last)
    except TimeoutError:
        return
    finally:
        reading.cancel()
        await asyncio.wait((reading,))
        feed.stop()


class _ProgressReporter:
    def __init__(self, feed: RunEventFeed, on_progress: OnProgress) -> None:
        self.last = "The run is accepted."
        self._feed = feed
        self._on_progress = on_progress
        self._lock = asyncio.Lock()
        self._reports = 0

    async def read(self) -> None:
        try:
            while (event := await self._feed.read()) is not None:
                if message := progress_text.line(event).strip():
                    self.last = message
                    await self.report(message)
        except ServiceError:
            return  # the caller reads the state of the run afterwards

    async def report(self, message: str) -> None:
        async with self._lock:
            self._reports += 1
            await self._on_progress(self._reports, message)
