"""Memory budget of one device: resident models and least-recently-used eviction."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import structlog

from experts.host import telemetry
from protos.hugginggpt import semantic_conventions as names

log = structlog.get_logger(__name__)


class Resident(Protocol):
    """A model in memory, as the memory budget sees it."""

    id: str
    loaded_bytes: int
    load_seconds: float
    """How long a reload would take."""
    loaded_at: float
    used_at: float

    @property
    def is_idle(self) -> bool:
        """Whether no call uses it or waits for it."""

    @property
    def is_unused(self) -> bool:
        """Whether no call uses it now."""

    def accept_calls(self, *, accepting: bool) -> None:
        """Admits further calls, or keeps them waiting."""

    async def unload(self) -> None:
        """Frees its memory."""


R = TypeVar("R", bound=Resident)


class DeviceMemory(Generic[R]):
    """The memory of one device that models may occupy.

    Args:
        device: its name, such as "cuda:0".
        budget_bytes: maximum for all models together; 0 sets no limit.
        release: returns freed memory from the engine to the system.
        batch_scale: factor of the limits of batches.
    """

    def __init__(
        self, device: str, budget_bytes: int, release: Callable[[], Awaitable[None]], *, batch_scale: float = 1.0
    ) -> None:
        self.device, self.budget_bytes, self.batch_scale = device, budget_bytes, batch_scale
        self.freed = asyncio.Event()
        """Set when a model is no longer used."""
        self.residents: list[R] = []
        self._release = release

    @property
    def used_bytes(self) -> int:
        return sum(resident.loaded_bytes for resident in self.residents)

    @property
    def largest_bytes(self) -> int:
        """Size of the largest resident model."""
        return max((resident.loaded_bytes for resident in self.residents), default=0)

    @property
    def free_bytes(self) -> int:
        """Bytes left, at least 1; 0 without a budget, where the number is unknown."""
        return max(1, self.budget_bytes - self.used_bytes) if self.budget_bytes else 0

    def fits(self, size: int) -> bool:
        """Whether so many bytes are free."""
        return not self.budget_bytes or self.used_bytes + size <= self.budget_bytes

    def add(self, resident: R) -> None:
        self.residents.append(resident)

    async def evict_for(self, needed: int, *, keep: R | None = None) -> None:
        """Unloads models, least recently used first, until the bytes are free or no other model is left.

        Waits for active calls to end if every model is in use.
        """
        while not self.fits(needed):
            others = [resident for resident in self.residents if resident is not keep]
            if not others:
                if needed or self.used_bytes > self.budget_bytes:
                    log.warning("model exceeds the memory budget", device=self.device, budget=self.budget_bytes)
                return
            await self._evict([await self._next_to_evict(others)])

    async def evict_idle(self, excluding: Callable[[R], bool] = lambda _resident: False) -> bool:
        """Unloads all idle models except the excluded ones; returns whether there were any."""
        idle = [resident for resident in self.residents if resident.is_idle and not excluding(resident)]
        await self._evict(idle)
        return bool(idle)

    async def _evict(self, evicted: Sequence[R]) -> None:
        for resident in evicted:
            self.residents.remove(resident)
        for resident in evicted:
            await resident.unload()
            telemetry.evictions.add(1, {names.REQUEST_MODEL: resident.id, "device": self.device})
            log.info("model unloaded", model=resident.id, device=self.device, freed_bytes=resident.loaded_bytes)
        await self._release()

    async def _next_to_evict(self, residents: Sequence[R]) -> R:
        """Waits for a model that can be evicted, and returns it.

        If all are in use, models that have been loaded for at least as long as their load took stop accepting calls,
        and the first without an active call is evicted. Otherwise a busy model would block all others, or two models
        would evict each other continuously.
        """
        closed: list[R] = []
        try:
            while True:
                self.freed.clear()
                idle = [
                    resident
                    for resident in residents
                    if resident.is_idle or (resident in closed and resident.is_unused)
                ]
                if idle:
                    return min(idle, key=lambda resident: resident.used_at)
                now, later = time.monotonic(), list[float]()
                for resident in residents:
                    due = resident.loaded_at + resident.load_seconds
                    if due > now:
                        later.append(due - now)
                    elif resident not in closed:
                        resident.accept_calls(accepting=False)
                        closed.append(resident)
                await self._wait_freed(min(later, default=None))
        finally:
            for resident in closed:
                resident.accept_calls(accepting=True)

    async def _wait_freed(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.freed.wait()
