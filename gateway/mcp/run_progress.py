"""A run waited for: what happens is told at once, and that it goes on every few seconds."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.openai import progress_text
from gateway.run_stream import RunEventFeed
from services.common.errors import ServiceError

BEAT_SECONDS = 8.0
"""Longest silence; a client may give up after one of ten."""

Tell = Callable[[float, str], Awaitable[None]]
"""Given a number that grows with each call, and what is being done."""


async def followed(feed: RunEventFeed, seconds: float, tell: Tell) -> None:
    """Reads a run's events to its end, or until the time is over."""
    following = _Following(feed, tell)
    reading = asyncio.create_task(following.read())
    try:
        async with asyncio.timeout(seconds):
            while not reading.done():
                await asyncio.wait((reading,), timeout=BEAT_SECONDS)
                if not reading.done():
                    await following.say(following.last)
    except TimeoutError:
        return
    finally:
        reading.cancel()
        await asyncio.wait((reading,))
        feed.stop()


class _Following:
    def __init__(self, feed: RunEventFeed, tell: Tell) -> None:
        self.last = "The run is accepted."
        self._feed = feed
        self._tell = tell
        self._turn = asyncio.Lock()
        self._said = 0

    async def read(self) -> None:
        try:
            while (event := await self._feed.read()) is not None:
                if words := progress_text.line(event).strip():
                    self.last = words
                    await self.say(words)
        except ServiceError:
            return  # the run itself is asked how it stands

    async def say(self, words: str) -> None:
        async with self._turn:
            self._said += 1
            await self._tell(self._said, words)
