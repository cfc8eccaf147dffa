"""Slots for active items of batches, with slower starts while interactive runs are active."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.change_signal import ChangeSignal

START_INTERVAL_SECONDS = 0.02
"""Shortest interval between starts of items while interactive runs are active, to leave the process to them."""

INTERACTIVE_SECONDS = 1.0
"""How long interactive runs count as active after the last one."""

CALM_SECONDS = 0.002
"""Longest round of an event loop that is not overloaded: an interactive call waits for many rounds."""

CALM_WAIT_SECONDS = 5.0
"""Longest wait of items for a short round; after it they start in spite of the overload, few at a time."""

OVERLOAD_SECONDS = 1.0
"""A wait for a short round is reported after this time: shorter ones hardly delay a batch."""

MEMORY_WAIT_SECONDS = 0.5
"""Interval at which free memory is checked."""

KEY_LIMIT = "other batches hold all the items that the API key may run at once"
SLOTS_TAKEN = "other batches hold all slots for items"
INTERACTIVE = "interactive runs are active: until they end, items start one at a time"
OVERLOADED = "the orchestrator is overloaded: its event loop is late, so that items start only every few seconds"
MEMORY_LOW = "the orchestrator is overloaded: its active runs use all the memory for batch items"
"""Reasons of a wait for slots."""

GUARANTEED_SHARE = 1 / 16
"""Guaranteed share of all slots for each tenant, at least one slot."""

Report = Callable[[str], None]


class BatchSlots:
    """Slots for items, shared fairly between the tenants whose batches run here; the oldest request is served first.

    While several tenants wait, those with more than their share wait longer. A tenant with less than its guaranteed
    share never waits for others, so that the limit may be exceeded by some slots.

    Args:
        limit: number of slots.
        has_interactive_runs: returns whether an interactive run is active here.
        is_memory_low: returns whether active runs use all the memory for items.
    """

    def __init__(self, limit: int, has_interactive_runs: Callable[[], bool], is_memory_low: Callable[[], bool]) -> None:
        self.limit = limit
        self._has_interactive_runs = has_interactive_runs
        self._is_memory_low = is_memory_low
        self._guaranteed = max(1, int(limit * GUARANTEED_SHARE))
        self._held: Counter[str] = Counter()
        self._held_by_key: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._next_start = 0.0
        self._last_interactive = -INTERACTIVE_SECONDS
        self._changed = ChangeSignal()

    async def acquire(self, caller: Caller, count: int, report: Report = lambda _: None) -> int:
        """Waits for slots; returns how many were acquired, between 1 and `count`.

        Args:
            caller: of the batch.
            count: requested slots.
            report: called with the reason whenever this waits or starts items slowly; with "" if neither was necessary.
        """
        wait = _Wait(report)
        while not self._left_for_key(caller):
            wait.begin(KEY_LIMIT)
            await self._changed.wait()
        with self._waits(caller.tenant):
            while True:
                await wait.until_calm()
                version = self._changed.version
                if self._is_memory_low():
                    wait.begin(MEMORY_LOW)
                    await asyncio.sleep(MEMORY_WAIT_SECONDS)
                elif not (available := min(self._available(caller.tenant), self._left_for_key(caller))):
                    wait.begin(SLOTS_TAKEN)
                    await self._changed.wait(version)
                elif not self._is_interactive():
                    break
                else:
                    wait.begin(INTERACTIVE)
                    if (delay := self._next_start - time.monotonic()) <= 0:
                        self._next_start = time.monotonic() + START_INTERVAL_SECONDS
                        count = 1
                        break
                    await asyncio.sleep(delay)
        if not wait.reason:
            report("")
        return self._grant(caller, min(count, available))

    def release(self, caller: Caller, count: int = 1) -> None:
        """Releases slots."""
        self._held -= Counter({caller.tenant: count})  # drops a tenant whose count is 0
        self._held_by_key -= Counter({caller.key_id: count})
        self._changed.notify()

    @contextmanager
    def _waits(self, tenant: str) -> Iterator[None]:
        self._waiting[tenant] += 1
        try:
            yield
        finally:
            self._waiting -= Counter([tenant])
            if self._waiting and tenant not in self._waiting:
                self._changed.notify()  # others may take the tenant's share

    def _available(self, tenant: str) -> int:
        """Number of slots that a tenant may acquire now."""
        held = self._held[tenant]
        with_less = sum(self._held[other] < held for other in self._waiting)
        free = min(self.limit - self._held.total(), self.limit // (with_less + 1) - held)
        return max(free, self._guaranteed - held, 0)

    def _left_for_key(self, caller: Caller) -> int:
        """Number of slots that the limit of the caller's API key leaves."""
        if not caller.items_at_once:
            return self.limit
        return max(0, caller.items_at_once - self._held_by_key[caller.key_id])

    def _is_interactive(self) -> bool:
        """Whether interactive runs are active, or were until lately."""
        now = time.monotonic()
        if self._has_interactive_runs():
            self._last_interactive = now
        return now - self._last_interactive < INTERACTIVE_SECONDS

    def _grant(self, caller: Caller, count: int) -> int:
        self._held[caller.tenant] += count
        self._held_by_key[caller.key_id] += count
        return count


class _Wait:
    """The waits of one call of BatchSlots.acquire()."""

    def __init__(self, report: Report) -> None:
        self.reason = ""
        """Of the last wait; empty: there was none."""
        self._report = report
        self._late = 0.0

    def begin(self, reason: str) -> None:
        self.reason = reason
        self._report(reason)

    async def until_calm(self) -> None:
        """Waits for a short round of the event loop, for CALM_WAIT_SECONDS at most in all."""
        while self._late < CALM_WAIT_SECONDS:
            started = time.monotonic()
            await asyncio.sleep(0)
            if (elapsed := time.monotonic() - started) < CALM_SECONDS:
                return
            self._late += elapsed
            if self._late > OVERLOAD_SECONDS:
                self.begin(OVERLOADED)
