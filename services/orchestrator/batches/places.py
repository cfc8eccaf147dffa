"""How many items of batches may be under way here, and how fast they begin while people wait."""

import asyncio
import time
from collections.abc import Callable

PACE_SECONDS = 0.02
"""Between two items that begin while a run for a person is under way: most of the process is for that."""

CROWDED_SECONDS = 0.5
"""How long it is waited for memory."""


class Places:
    """Places for items, shared by all batches driven here; who waits longest has the next.

    Args:
        most: places.
        people: whether a run is under way here for which somebody waits.
        crowded: whether the runs under way take all the memory they may.
    """

    def __init__(self, most: int, people: Callable[[], bool], crowded: Callable[[], bool]) -> None:
        self.most = most
        self._people = people
        self._crowded = crowded
        self._taken = 0
        self._next_at = 0.0
        self._changed = asyncio.Event()

    async def take(self, wanted: int) -> int:
        """Takes places, as soon as there are any; gives how many, one at least."""
        while True:
            changed = self._changed
            if self._crowded():
                await asyncio.sleep(CROWDED_SECONDS)
            elif self._taken >= self.most:
                await changed.wait()
            elif not self._people():
                return self._took(min(wanted, self.most - self._taken))
            elif (delay := self._next_at - time.monotonic()) > 0:
                await asyncio.sleep(delay)
            else:
                self._next_at = time.monotonic() + PACE_SECONDS
                return self._took(1)

    def give_back(self, count: int = 1) -> None:
        """Places are free again."""
        self._taken -= count
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()

    def _took(self, count: int) -> int:
        self._taken += count
        return count
