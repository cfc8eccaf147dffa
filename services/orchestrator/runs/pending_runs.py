"""Runs that the journal has been asked to keep, and has not answered for yet."""

import asyncio
import time


class Keeping:
    """Knows how long they have waited."""

    def __init__(self) -> None:
        self._since: dict[asyncio.Future[str], float] = {}

    def add(self, kept: "asyncio.Future[str]") -> "asyncio.Future[str]":
        """One more, until it is done; gives it back."""
        self._since[kept] = time.monotonic()
        kept.add_done_callback(self._since.pop)
        return kept

    def behind(self) -> float:
        """Seconds that the one has waited that has waited longest."""
        return time.monotonic() - next(iter(self._since.values()), time.monotonic())

    async def done(self) -> None:
        """Waits for those there are."""
        if self._since:
            await asyncio.wait(self._since)
