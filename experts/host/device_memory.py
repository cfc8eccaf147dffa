"""Memory budgets of devices: resident models and least-recently-used eviction."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import structlog

from experts.host import telemetry
from experts.host.devices import CPU, Devices, Placement, batch_scale, limit_bytes, resident_bytes, trim
from experts.host.threads import ThreadPool
from protos.hugginggpt import semantic_conventions as names
from services.common.errors import FailedPrecondition

log = structlog.get_logger(__name__)

CPU_SHARE, GPU_SHARE = 0.7, 0.9
"""Default memory budget, as a share of the device's memory; the rest is for calls."""


class Resident(Protocol):
    """A model in memory, as the memory budget sees it."""

    id: str
    loaded_bytes: int
    shared_bytes: Mapping[str, int]
    """Bytes of models that several residents share, by name."""
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
        return sum(resident.loaded_bytes for resident in self.residents) + sum(self._shared_bytes().values())

    @property
    def largest_bytes(self) -> int:
        """Size of the largest resident model."""
        return max((resident.loaded_bytes for resident in self.residents), default=0)

    @property
    def free_bytes(self) -> int:
        """Bytes left, at least 1; 0 without a budget, where the number is unknown."""
        return max(1, self.budget_bytes - self.used_bytes) if self.budget_bytes else 0

    def expected_bytes(self, own: int, shared: Mapping[str, int]) -> int:
        """Returns the bytes that a model will take: its own, and those shared ones that no resident has."""
        present = self._shared_bytes()
        return own + sum(size for name, size in shared.items() if name not in present)

    def fits(self, size: int) -> bool:
        """Whether so many bytes are free."""
        return not self.budget_bytes or self.used_bytes + size <= self.budget_bytes

    def add(self, resident: R) -> None:
        self.residents.append(resident)

    def _shared_bytes(self) -> dict[str, int]:
        return {name: size for resident in self.residents for name, size in resident.shared_bytes.items()}

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


class DeviceMemories(Generic[R]):
    """The memory of all devices of an engine that models have been loaded on.

    Args:
        devices: the engine's devices.
        budget_bytes: maximum for the models on each device; 0 derives it from the device.
        batch_scale: factor of the limits of batches; 0 derives it from the device.
    """

    def __init__(self, devices: Devices, *, budget_bytes: int = 0, batch_scale: float = 0.0) -> None:
        self._devices, self._budget_bytes, self._batch_scale = devices, budget_bytes, batch_scale
        self._thread = ThreadPool("devices")
        self._memories: dict[str, DeviceMemory[R]] = {}

    @property
    def free_bytes(self) -> int:
        """Free memory of the device that has most; 0 if unknown."""
        return max((memory.free_bytes for memory in self._memories.values()), default=0)

    @property
    def bytes_by_kind(self) -> Mapping[tuple[str, str], int]:
        """Bytes by device and kind: "models" (in use) or "budget"."""
        memories = tuple(self._memories.values())
        return {(memory.device, "models"): memory.used_bytes for memory in memories} | {
            (memory.device, "budget"): memory.budget_bytes for memory in memories
        }

    @property
    def utilization(self) -> Mapping[str, float]:
        """Recent utilization of each device, 0 to 1, where it is known."""
        found = {device: self._devices.utilization(device) for device in tuple(self._memories)}
        return {device: share for device, share in found.items() if share is not None}

    def used_bytes(self, device: str) -> int:
        """Returns the bytes in use, measured: by this process on the CPU, by all processes on a GPU."""
        return resident_bytes() if device == CPU else self._devices.memory(device).used

    def probably_fits(self, size: int) -> bool:
        """Whether so many bytes, or the size of the largest model if 0, are free on any device."""
        memories = self._memories.values()
        return not memories or any(memory.fits(size or memory.largest_bytes) for memory in memories)

    async def select(self, placement: Placement) -> DeviceMemory[R]:
        """Returns the matching device with the most free memory.

        Raises:
            FailedPrecondition: LOAD_FAILED, no such device exists.
        """
        memories = [await self._memory_of(device) for device in await self._matching_devices(placement)]
        return max(memories, key=lambda memory: memory.free_bytes)

    async def check(self, placement: Placement) -> None:
        """Checks that the device of a placement exists.

        Raises:
            FailedPrecondition: LOAD_FAILED, it does not exist.
        """
        if placement.device != "auto":
            await self._matching_devices(placement)

    async def evict_others(self, kept: Callable[[R], bool]) -> None:
        """Unloads the idle models on the devices of the kept models."""
        for memory in self._memories.values():
            if any(kept(resident) for resident in memory.residents):
                await memory.evict_idle(excluding=kept)

    def notify_idle(self) -> None:
        """Signals that a model is no longer used."""
        for memory in self._memories.values():
            memory.freed.set()

    def close(self) -> None:
        self._thread.close()

    async def _matching_devices(self, placement: Placement) -> list[str]:
        present = (CPU,) if placement.device == CPU else await self._thread.run(self._devices.devices)
        matching = [device for device in present if placement.device in ("auto", device, device.partition(":")[0])]
        if not matching:
            known = ", ".join(dict.fromkeys([*present, CPU]))
            remedy = f"install the device and its driver, or choose one of {known} in EXPERT_DEVICES"
            raise FailedPrecondition(f"there is no device {placement.device}", reason="LOAD_FAILED", remedy=remedy)
        return matching

    async def _memory_of(self, device: str) -> DeviceMemory[R]:
        if device not in self._memories:
            budget, scale = await self._thread.run(self._default_limits, device)
            self._memories[device] = DeviceMemory(
                device, self._budget_bytes or budget, self._release, batch_scale=self._batch_scale or scale
            )
        return self._memories[device]

    def _default_limits(self, device: str) -> tuple[int, float]:
        """Returns the memory budget and the batch scale of a device."""
        if device == CPU:
            return int(limit_bytes() * CPU_SHARE), batch_scale(CPU, limit_bytes())
        memory = self._devices.memory(device)
        return int(memory.free * GPU_SHARE), batch_scale(device, memory.used + memory.free)

    async def _release(self) -> None:
        await self._thread.run(self._devices.release)
        await self._thread.run(trim)
