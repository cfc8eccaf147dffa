"""How many items of batches may be under way here, and how fast they begin while people wait."""

import asyncio
import time
from collections.abc import Callable

PACE_SECONDS = 0.02
"""Between two items that begin while people ask: most of the process is for them."""

PRESENT_SECONDS = 1.0
"""How long people count as asking after a run for one of them was under way."""

CALM_SECONDS = 0.002
"""A round of the event loop that takes longer has enough to do: what a person asks for would wait for many of those."""

CROWDED_SECONDS = 0.5
"""How long it is waited for memory."""


class Places:
    """Places for items, shared by all batches driven here; who waits longest has the next.

    Args:
        most: places.
        people: whether a run is under way here for which somebody waits.
        crowded: whether the runs under way take all the memory that is for items.
    """

    def __init__(self, most: int, people: Callable[[], bool], crowded: Callable[[], bool]) -> None:
        self.most = most
        self._people = people
        self._crowded = crowded
        self._taken = 0
        self._next_at = 0.0
        self._asked_at = -PRESENT_SECONDS
        self._changed = asyncio.Event()

    async def take(self, wanted: int) -> int:
        """Takes places, as soon as there are any; gives how many, one at least."""
        while True:
            await _calm()
            changed = self._changed
            if self._crowded():
                await asyncio.sleep(CROWDED_SECONDS)
            elif self._taken >= self.most:
                await changed.wait()
            elif not self._asks():
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

    def _asks(self) -> bool:
        """Whether people ask, or did a moment ago."""
        now = time.monotonic()
        if self._people():
            self._asked_at = now
        return now - self._asked_at < PRESENT_SECONDS

    def _took(self, count: int) -> int:
        self._taken += count
        return count


async def _calm() -> None:
    """Waits for a short round of the event loop."""
    while True:
        begun = time.monotonic()
        await asyncio.sleep(0)
        if time.monotonic() - begun < CALM_SECONDS:
            return
