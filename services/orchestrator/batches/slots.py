"""How many items of batches may be under way here, and how fast they begin while people wait."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.change_signal import ChangeSignal

PACE_SECONDS = 0.02
"""Between two items that begin while people ask: most of the process is for them."""

PRESENT_SECONDS = 1.0
"""How long people count as asking after a run for one of them was under way."""

CALM_SECONDS = 0.002
"""A round of the event loop that takes longer has enough to do: what a person asks for would wait for many of those."""

CALM_WAIT_SECONDS = 5.0
"""Most time that items wait for a short round; then they start all the same, few at a time."""

REPORT_SECONDS = 1.0
"""Items that wait longer for a short round, or for memory, have their batch say so."""

CROWDED_SECONDS = 0.5
"""How long it is waited for memory."""

BUSY = "the orchestrator is overloaded: its event loop is late, so that items start only every few seconds"
CROWDED = "the orchestrator is overloaded: its active runs take all the memory for batch items"
"""What a batch says it waits for."""

Report = Callable[[str], Awaitable[None]]

FEW = 1 / 16
"""Of all places, what a tenant has whatever others have, one at least: theirs may be held up for long."""


class Places:
    """Places for items, shared between the tenants whose batches are driven here; who waits longest has the next.

    Where several tenants wait, those who have more than their share of the places do so longer. A tenant that has few
    waits for no other's to be free, so that there may be some more under way than there are places.

    Args:
        most: places.
        people: whether a run is under way here for which somebody waits.
        crowded: whether the runs under way take all the memory that is for items.
    """

    def __init__(self, most: int, people: Callable[[], bool], crowded: Callable[[], bool]) -> None:
        self.most = most
        self._people = people
        self._crowded = crowded
        self._few = max(1, int(most * FEW))
        self._held: Counter[str] = Counter()
        self._of_keys: Counter[str] = Counter()
        self._wanting: Counter[str] = Counter()
        self._next_at = 0.0
        self._asked_at = -PRESENT_SECONDS
        self._changed = ChangeSignal()

    async def take(self, who: Caller, wanted: int, report: Report | None = None) -> int:
        """Takes places for who started a batch, as soon as there are any; gives how many, one at least.

        Args:
            who: the caller of the batch.
            wanted: places.
            report: called with BUSY or CROWDED when an overload delays this for longer than REPORT_SECONDS.
        """
        while not self._left(who):
            await self._changed.wait()
        with self._wants(who.tenant):
            overload = _Delay(report)
            while True:
                await overload.calm()
                version = self._changed.version
                if self._crowded():
                    await overload.crowded()
                elif not (room := min(self._room(who.tenant), self._left(who))):
                    await self._changed.wait(version)
                elif not self._asks():
                    return self._took(who, min(wanted, room))
                elif (delay := self._next_at - time.monotonic()) > 0:
                    await asyncio.sleep(delay)
                else:
                    self._next_at = time.monotonic() + PACE_SECONDS
                    return self._took(who, 1)

    def give_back(self, who: Caller, count: int = 1) -> None:
        """Places are free again."""
        self._held -= Counter({who.tenant: count})  # which drops who has none
        self._of_keys -= Counter({who.key_id: count})
        self._changed.notify()

    @contextmanager
    def _wants(self, tenant: str) -> Iterator[None]:
        self._wanting[tenant] += 1
        try:
            yield
        finally:
            self._wanting -= Counter([tenant])
            if self._wanting and tenant not in self._wanting:
                self._changed.notify()  # what was left for it may be others'

    def _room(self, tenant: str) -> int:
        """How many places a tenant may take now."""
        held = self._held[tenant]
        less = sum(self._held[other] < held for other in self._wanting)
        free = min(self.most - self._held.total(), self.most // (less + 1) - held)
        return max(free, self._few - held, 0)

    def _left(self, who: Caller) -> int:
        """How many more places its key allows."""
        return max(0, who.items_at_once - self._of_keys[who.key_id]) if who.items_at_once else self.most

    def _asks(self) -> bool:
        """Whether people ask, or did a moment ago."""
        now = time.monotonic()
        if self._people():
            self._asked_at = now
        return now - self._asked_at < PRESENT_SECONDS

    def _took(self, who: Caller, count: int) -> int:
        self._held[who.tenant] += count
        self._of_keys[who.key_id] += count
        return count


class _Delay:
    """How long one call of Places.take() has waited because of an overload."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._busy = 0.0
        self._crowded = 0.0

    async def calm(self) -> None:
        """Waits for a short round of the event loop, CALM_WAIT_SECONDS at most in all."""
        while self._busy < CALM_WAIT_SECONDS:
            begun = time.monotonic()
            await asyncio.sleep(0)
            if (took := time.monotonic() - begun) < CALM_SECONDS:
                return
            self._busy += took
            await self._exceeded(self._busy, BUSY)

    async def crowded(self) -> None:
        """Waits a while for memory."""
        await asyncio.sleep(CROWDED_SECONDS)
        self._crowded += CROWDED_SECONDS
        await self._exceeded(self._crowded, CROWDED)

    async def _exceeded(self, seconds: float, reason: str) -> None:
        if self._report and seconds > REPORT_SECONDS:
            await self._report(reason)
