"""The memory of one device: who is in it, and who has to leave so that another can come in."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import structlog

from experts.host import telemetry
from services.common import semantic_conventions as names

log = structlog.get_logger(__name__)


class Resident(Protocol):
    """A model in memory, as far as its place there is concerned."""

    id: str
    loaded_bytes: int
    load_seconds: float
    """What it would cost to have it back."""
    loaded_at: float
    used_at: float

    @property
    def idle(self) -> bool:
        """Nobody uses it, or waits to."""

    @property
    def vacant(self) -> bool:
        """Nobody uses it now."""

    def admit(self, *, admitting: bool) -> None:
        """Lets further calls in, or keeps them waiting."""

    async def unload(self) -> None:
        """Frees its memory."""


R = TypeVar("R", bound=Resident)


class Room(Generic[R]):
    """The memory of one device that models may take.

    Args:
        device: which.
        budget: bytes; 0 sets no limit.
        release: has the engine give freed memory back.
    """

    def __init__(self, device: str, budget: int, release: Callable[[], Awaitable[None]]) -> None:
        self.device, self.budget = device, budget
        self.freed = asyncio.Event()
        """Set when a model is no longer used."""
        self.residents: list[R] = []
        self._release = release

    @property
    def used(self) -> int:
        return sum(resident.loaded_bytes for resident in self.residents)

    @property
    def largest(self) -> int:
        return max((resident.loaded_bytes for resident in self.residents), default=0)

    @property
    def free(self) -> int:
        """Bytes left; 0 where there is no limit, since that says nothing."""
        return max(1, self.budget - self.used) if self.budget else 0

    def has(self, size: int) -> bool:
        """Whether so many bytes are free."""
        return not self.budget or self.used + size <= self.budget

    def enter(self, resident: R) -> None:
        self.residents.append(resident)

    async def make(self, needed: int, *, keep: R | None = None) -> None:
        """Has models leave, those first that were not used for longest, until so many bytes are free or nobody is left.

        Waits for calls under way where every model is in use.
        """
        while not self.has(needed):
            others = [resident for resident in self.residents if resident is not keep]
            if not others:
                if needed or self.used > self.budget:
                    log.warning("a model takes more than its budget", device=self.device, budget=self.budget)
                return
            await self._let_go([await self._leaving(others)])

    async def clear(self, spare: Callable[[R], bool] = lambda _resident: False) -> bool:
        """Has all models leave that nobody uses, but for some; whether there were any."""
        idle = [resident for resident in self.residents if resident.idle and not spare(resident)]
        await self._let_go(idle)
        return bool(idle)

    async def _let_go(self, leaving: Sequence[R]) -> None:
        for resident in leaving:
            self.residents.remove(resident)
        for resident in leaving:
            await resident.unload()
            telemetry.evictions.add(1, {names.REQUEST_MODEL: resident.id, "device": self.device})
            log.info("model unloaded", model=resident.id, device=self.device, freed_bytes=resident.loaded_bytes)
        await self._release()

    async def _leaving(self, residents: Sequence[R]) -> R:
        """The one that leaves next.

        If all are in use, those that were there for as long as they took to load let nobody in any more, and the first
        that is vacant leaves: else a busy model would keep all others out, or two would do nothing but take turns.
        """
        closed: list[R] = []
        try:
            while True:
                self.freed.clear()
                idle = [resident for resident in residents if resident.idle or (resident in closed and resident.vacant)]
                if idle:
                    return min(idle, key=lambda resident: resident.used_at)
                now, later = time.monotonic(), list[float]()
                for resident in residents:
                    due = resident.loaded_at + resident.load_seconds
                    if due > now:
                        later.append(due - now)
                    elif resident not in closed:
                        resident.admit(admitting=False)
                        closed.append(resident)
                await self._until_freed(min(later, default=None))
        finally:
            for resident in closed:
                resident.admit(admitting=True)

    async def _until_freed(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.freed.wait()
