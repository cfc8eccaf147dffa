"""How models come into memory: one after the other, each on its own thread, others leaving where room is short."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from experts.host import load_context, telemetry
from experts.host.batcher import Queue
from experts.host.device_memory import Room
from experts.host.devices import CPU, Devices, Place, Places, limit_bytes, resident_bytes, trim
from experts.host.loaded_model import Loaded
from experts.host.metering import Pools
from experts.host.model_errors import is_out_of_memory
from experts.host.threads import Threads
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from experts.host.model_slot import Model

Clock = Callable[[], float]

CLEARING_SECONDS = 30.0

CPU_SHARE, GPU_SHARE = 0.7, 0.9
"""How much of a memory models may take where nobody set a budget; the rest is for the calls."""


class Loads:
    """What loading models share. They take turns: imports on several threads at once can deadlock.

    Args:
        devices: the engine's.
        places: where the operator wants which model.
        memory_bytes: what models may take of each device; 0 leaves some of it for the calls.
        pools: what of the price table they use.
        clock: seconds.
    """

    def __init__(self, devices: Devices, places: Places, *, memory_bytes: int, pools: Pools, clock: Clock) -> None:
        self.clock = clock
        self.changed = asyncio.Event()
        """Set whenever a model was loaded, or was not, or was let go; cleared by who follows it."""
        self.changes = 0
        """How often that has happened."""
        self.since: float | None = None
        """When the load began that is under way, on time.monotonic()'s clock."""
        self._devices, self._places, self._memory_bytes, self._pools = devices, places, memory_bytes, pools
        self._turn = asyncio.Lock()
        self._thread = Threads("devices")
        self._rooms: dict[str, Room[Model]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def free_bytes(self) -> int:
        """What models may still take where most is left; 0 if that is not known."""
        return max((room.free for room in self._rooms.values()), default=0)

    @property
    def memory(self) -> dict[tuple[str, str], int]:
        """Bytes, by device and what they are: taken by models, or their budget there."""
        rooms = tuple(self._rooms.values())
        return {(room.device, "models"): room.used for room in rooms} | {
            (room.device, "budget"): room.budget for room in rooms
        }

    @property
    def use(self) -> dict[str, float]:
        """The share of the last moments in which each device computed, where somebody knows."""
        found = {device: self._devices.use(device) for device in tuple(self._rooms)}
        return {device: share for device, share in found.items() if share is not None}

    def has_room_for(self, model: "Model") -> bool:
        """Whether it is likely to come in without another leaving."""
        rooms = self._rooms.values()
        return not rooms or any(room.has(model.loaded_bytes or room.largest) for room in rooms)

    async def load(self, model: "Model") -> None:
        """Loads a model, once it is its turn and there is room.

        Raises:
            Exception: whatever its loader raises.
        """
        self._loop = asyncio.get_running_loop()
        async with self._turn:
            place = self._places.of(model.id)
            room = await self._room_at(place)
            await room.make(_expected(model, room.device))
            self.since = began = time.monotonic()
            try:
                with telemetry.loading(model.id, model.task, room.device):
                    loaded, taken = await self._fitted(room, model, place)
            finally:
                self.since = None
            model.came_in(loaded, taken, seconds=time.monotonic() - began)
            room.enter(model)
            await room.make(0, keep=model)

    def tell(self) -> None:
        """A model's state is another."""
        self.changes += 1
        self.changed.set()

    def freed(self) -> None:
        """A model is no longer used."""
        for room in self._rooms.values():
            room.freed.set()

    def make_room(self, queue: Queue) -> None:
        """Has the models leave that nobody uses where those of a queue are; to be called on the queue's thread."""
        if self._loop:
            asyncio.run_coroutine_threadsafe(self._cleared(queue), self._loop).result(CLEARING_SECONDS)

    def close(self) -> None:
        self._thread.close()

    async def _cleared(self, queue: Queue) -> None:
        for room in self._rooms.values():
            if any(model.queue is queue for model in room.residents):
                await room.clear(spare=lambda model: model.queue is queue)

    async def _fitted(self, room: "Room[Model]", model: "Model", place: Place) -> tuple[Loaded, int]:
        try:
            return await model.queue.thread.run(self._measured, model, room.device, place.dtype)
        except Exception as error:
            if not is_out_of_memory(error) or not await room.clear():
                raise
        return await model.queue.thread.run(self._measured, model, room.device, place.dtype)

    def _measured(self, model: "Model", device: str, dtype: str) -> tuple[Loaded, int]:
        """The model, and the bytes it takes; on its thread."""
        before = self._used(device)
        told = load_context.Loading(model.offer.card.revision, model.tell, model.task, model.id, device, dtype)
        with load_context.told(told):
            handler = model.offer.loader(model.id, device)
        elsewhere = hasattr(handler, "ask")
        loaded = Loaded(handler, self._pools.elsewhere if elsewhere else self._pools.of(device, self._devices.product))
        return loaded, loaded.memory_bytes or max(0, self._used(device) - before)

    def _used(self, device: str) -> int:
        return resident_bytes() if device == CPU else self._devices.memory(device).used

    async def check_places(self, model_ids: Iterable[str]) -> None:
        """Whether there is a device for each model that is to be on a certain one.

        Raises:
            FailedPrecondition: LOAD_FAILED, there is not.
        """
        for place in {self._places.of(model_id) for model_id in model_ids}:
            if place.device != "auto":
                await self._fitting(place)

    async def _room_at(self, place: Place) -> "Room[Model]":
        """Where a model is to go; of several devices that would do, the one with most room.

        Raises:
            FailedPrecondition: LOAD_FAILED, there is no such device.
        """
        return max([await self._room(device) for device in await self._fitting(place)], key=lambda room: room.free)

    async def _fitting(self, place: Place) -> list[str]:
        there = (CPU,) if place.device == CPU else await self._thread.run(self._devices.devices)
        fitting = [device for device in there if place.device in ("auto", device, device.partition(":")[0])]
        if not fitting:
            known = ", ".join(dict.fromkeys([*there, CPU]))
            remedy = f"give it one and its driver, or choose among {known} in EXPERT_DEVICES"
            raise FailedPrecondition(f"there is no device {place.device}", reason="LOAD_FAILED", remedy=remedy)
        return fitting

    async def _room(self, device: str) -> "Room[Model]":
        if device not in self._rooms:
            budget = self._memory_bytes or await self._thread.run(self._usual_budget, device)
            self._rooms[device] = Room(device, budget, self._release)
        return self._rooms[device]

    def _usual_budget(self, device: str) -> int:
        if device == CPU:
            return int(limit_bytes() * CPU_SHARE)
        return int(self._devices.memory(device).free * GPU_SHARE)

    async def _release(self) -> None:
        await self._thread.run(self._devices.release)
        await self._thread.run(trim)


def _expected(model: "Model", device: str) -> int:
    """What a model is likely to take: as it did last, or as its card says, else by its parameters."""
    return model.loaded_bytes or model.offer.card.parameter_count * (4 if device == CPU else 2)
