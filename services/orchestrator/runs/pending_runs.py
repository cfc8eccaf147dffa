"""New runs whose journal write has not finished."""

import asyncio
import time


class PendingRuns:
    """Tracks pending journal writes of new runs."""

    def __init__(self) -> None:
        self._since: dict[asyncio.Future[str], float] = {}

    def add(self, write: "asyncio.Future[str]") -> "asyncio.Future[str]":
        """Tracks a write until it is done; returns it."""
        self._since[write] = time.monotonic()
        write.add_done_callback(self._since.pop)
        return write

    def longest_wait(self) -> float:
        """Seconds that the oldest pending write has waited; 0 if there is none."""
        return time.monotonic() - next(iter(self._since.values()), time.monotonic())

    async def done(self) -> None:
        """Waits until the current writes are done."""
        if self._since:
            await asyncio.wait(self._since)
