"""All models of one expert: loads them one at a time, and evicts others when memory is short."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from experts.host import load_context, telemetry
from experts.host.batch_composer import BatchComposer
from experts.host.batcher import Batcher
from experts.host.compute_options import ENGINE_CHOICE, ComputeOptions
from experts.host.device_memory import DeviceMemory
from experts.host.devices import (
    BATCH_ITEMS,
    CPU,
    MAX_WAITING,
    CpuOnly,
    Devices,
    Placement,
    Placements,
    batch_scale,
    limit_bytes,
    resident_bytes,
    trim,
)
from experts.host.expert import Offer
from experts.host.handler import RemoteHandler, UnavailableReason
from experts.host.loaded_model import LoadedModel
from experts.host.metering import Pools
from experts.host.model_errors import is_out_of_memory
from experts.host.model_slot import ModelSlot, State
from experts.host.threads import ThreadPool
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from experts.host.model_slot import ModelSlot


Clock = Callable[[], float]

EVICTION_TIMEOUT_SECONDS = 30.0

CPU_SHARE, GPU_SHARE = 0.7, 0.9
"""Default memory budget, as a share of the device's memory; the rest is for calls."""


class ModelManager:
    """Loads models and tracks their memory. Loads are serialized: imports on several threads at once can deadlock.

    Args:
        devices: the engine's devices.
        placements: device and number type of each model, as configured by the operator.
        limits: memory budget of each device, and limits of calls and batches.
        pools: usage pools of the devices.
        clock: seconds.
    """

    def __init__(
        self, devices: Devices, placements: Placements, *, limits: "Limits", pools: Pools, clock: Clock
    ) -> None:
        self.clock = clock
        self.changed = asyncio.Event()
        """Set when a model was loaded or unloaded, or failed to load; cleared by the observer."""
        self.changes = 0
        """Number of such changes."""
        self.loading_since: float | None = None
        """When the load in progress started, by time.monotonic()."""
        self._devices, self._placements, self._limits, self._pools = devices, placements, limits, pools
        self._load_lock = asyncio.Lock()
        self._thread = ThreadPool("devices")
        self._memories: dict[str, DeviceMemory[ModelSlot]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def free_bytes(self) -> int:
        """Free memory of the device that has most; 0 if unknown."""
        return max((memory.free_bytes for memory in self._memories.values()), default=0)

    @property
    def memory(self) -> dict[tuple[str, str], int]:
        """Bytes by device and kind: "models" (in use) or "budget"."""
        memories = tuple(self._memories.values())
        return {(memory.device, "models"): memory.used_bytes for memory in memories} | {
            (memory.device, "budget"): memory.budget_bytes for memory in memories
        }

    @property
    def utilization(self) -> dict[str, float]:
        """Recent utilization of each device, 0 to 1, where it is known."""
        found = {device: self._devices.utilization(device) for device in tuple(self._memories)}
        return {device: share for device, share in found.items() if share is not None}

    def has_memory_for(self, model: "ModelSlot") -> bool:
        """Whether the model probably fits without evicting another."""
        memories = self._memories.values()
        return not memories or any(memory.fits(model.loaded_bytes or memory.largest_bytes) for memory in memories)

    async def load(self, model: "ModelSlot") -> None:
        """Loads a model after earlier loads, once there is memory for it.

        Raises:
            Exception: as raised by its loader.
        """
        self._loop = asyncio.get_running_loop()
        async with self._load_lock:
            placement = self._placements.of(model.id)
            memory = await self._select_memory(placement)
            await memory.evict_for(_expected_bytes(model, memory.device))
            self.loading_since = started_at = time.monotonic()
            try:
                with telemetry.load_span(model.id, model.task, memory.device):
                    loaded, used_bytes = await self._load_with_retry(memory, model, placement)
            finally:
                self.loading_since = None
            model.set_loaded(loaded, used_bytes, seconds=time.monotonic() - started_at)
            model.batcher.limit = max(model.batcher.limit, self._limits.calls(loaded))
            memory.add(model)
            await memory.evict_for(0, keep=model)

    def notify_change(self) -> None:
        """Signals that the state of a model has changed."""
        self.changes += 1
        self.changed.set()

    def notify_idle(self) -> None:
        """Signals that a model is no longer used."""
        for memory in self._memories.values():
            memory.freed.set()

    def free_memory(self, batcher: Batcher) -> None:
        """Evicts idle models on the devices of a batcher's models; must be called on the batcher's thread."""
        if self._loop:
            eviction = asyncio.run_coroutine_threadsafe(self._evict_others(batcher), self._loop)
            eviction.result(EVICTION_TIMEOUT_SECONDS)

    def close(self) -> None:
        self._thread.close()

    async def _evict_others(self, batcher: Batcher) -> None:
        for memory in self._memories.values():
            if any(model.batcher is batcher for model in memory.residents):
                await memory.evict_idle(excluding=lambda model: model.batcher is batcher)

    async def _load_with_retry(
        self, memory: "DeviceMemory[ModelSlot]", model: "ModelSlot", placement: Placement
    ) -> tuple[LoadedModel, int]:
        """Loads the model; if it runs out of memory, evicts idle models and tries once more."""
        try:
            return await model.batcher.thread.run(self._load_and_measure, model, memory, placement.dtype)
        except Exception as error:
            if not is_out_of_memory(error) or not await memory.evict_idle():
                raise
        return await model.batcher.thread.run(self._load_and_measure, model, memory, placement.dtype)

    def _load_and_measure(
        self, model: "ModelSlot", memory: "DeviceMemory[ModelSlot]", dtype: str
    ) -> tuple[LoadedModel, int]:
        """Returns the loaded model and the bytes that it takes; on its thread."""
        device, scale = memory.device, memory.batch_scale
        options = model.offer.compute.on(device, replace(self._limits.compute, dtype=dtype))
        before = self._used_bytes(device)
        context = load_context.LoadContext(
            model.offer.card.revision,
            model.report_progress,
            model.task,
            model.id,
            device,
            options.dtype,
            scale,
            options.attention,
            options.tf32,
        )
        with load_context.use(context):
            handler = model.offer.loader(model.id, device)
        is_remote = isinstance(handler, RemoteHandler)
        pool = self._pools.remote if is_remote else self._pools.of(device, self._devices.product)
        loaded = LoadedModel(handler, pool, batch_items=self._limits.items(scale), batch_scale=scale)
        return loaded, loaded.memory_bytes or max(0, self._used_bytes(device) - before)

    def _used_bytes(self, device: str) -> int:
        return resident_bytes() if device == CPU else self._devices.memory(device).used

    async def check_placements(self, model_ids: Iterable[str]) -> None:
        """Checks that the configured device of each model exists.

        Raises:
            FailedPrecondition: LOAD_FAILED, a device does not exist.
        """
        for placement in {self._placements.of(model_id) for model_id in model_ids}:
            if placement.device != "auto":
                await self._matching_devices(placement)

    async def _select_memory(self, placement: Placement) -> "DeviceMemory[ModelSlot]":
        """Returns the matching device with the most free memory.

        Raises:
            FailedPrecondition: LOAD_FAILED, no such device exists.
        """
        memories = [await self._memory_of(device) for device in await self._matching_devices(placement)]
        return max(memories, key=lambda memory: memory.free_bytes)

    async def _matching_devices(self, placement: Placement) -> list[str]:
        present = (CPU,) if placement.device == CPU else await self._thread.run(self._devices.devices)
        matching = [device for device in present if placement.device in ("auto", device, device.partition(":")[0])]
        if not matching:
            known = ", ".join(dict.fromkeys([*present, CPU]))
            remedy = f"install the device and its driver, or choose one of {known} in EXPERT_DEVICES"
            raise FailedPrecondition(f"there is no device {placement.device}", reason="LOAD_FAILED", remedy=remedy)
        return matching

    async def _memory_of(self, device: str) -> "DeviceMemory[ModelSlot]":
        if device not in self._memories:
            budget, scale = await self._thread.run(self._default_limits, device)
            self._memories[device] = DeviceMemory(
                device,
                self._limits.memory_bytes or budget,
                self._release,
                batch_scale=self._limits.batch_scale or scale,
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


def _expected_bytes(model: "ModelSlot", device: str) -> int:
    """Expected memory use: measured at the last load, stated by the card, or estimated from the parameter count."""
    is_float32 = device == CPU or model.offer.compute.dtype == "float32"
    return model.loaded_bytes or model.offer.card.parameter_count * (4 if is_float32 else 2)


log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits that apply to every model; see the settings of the same names. 0 derives one from the device."""

    max_waiting: int = 0
    batch_items: int = 0
    batch_scale: float = 0.0
    background_seconds: float = 0.05
    memory_bytes: int = 0
    compute: ComputeOptions = ENGINE_CHOICE
    """The operator's choices for all models, instead of those of the cards."""

    def calls(self, model: LoadedModel | None = None) -> int:
        """Returns the maximum calls of a model, which may not be loaded yet: by default two full batches, or more."""
        full_batch = 0 if model is None or model.handler.concurrent else int(model.batching.items)
        return self.max_waiting or max(MAX_WAITING, 2 * full_batch)

    def items(self, scale: float) -> int:
        """Returns the maximum calls in one batch on a device of a batch scale."""
        return self.batch_items or max(1, round(BATCH_ITEMS * scale))


class Models:
    """All models of an expert, by task and id. Models with the same id share a batcher and its thread."""

    def __init__(
        self,
        offers: Iterable[Offer],
        limits: Limits,
        *,
        devices: Devices | None = None,
        placements: str = "",
        pool: str = "",
        clock: Clock = time.monotonic,
    ) -> None:
        """Creates the models without loading them.

        Args:
            offers: the expert's models.
            limits: for every model.
            devices: the engine's devices; None for an engine that only uses the CPU.
            placements: device of each model, as in EXPERT_DEVICES.
            pool: name of the usage pool, as in EXPERT_POOL.
            clock: seconds.
        """
        self._limits = limits
        devices = devices or CpuOnly()
        self._manager = ModelManager(devices, Placements(placements), limits=limits, pools=Pools(pool), clock=clock)
        self.changed = self._manager.changed
        """Set when a model was loaded or unloaded, or failed to load; cleared by the observer."""
        self.notify_change = self._manager.notify_change
        """Must be called when a model's unavailable_reason changes."""
        self._loaded: tuple[int, frozenset[str], str] = (-1, frozenset(), "")
        self._batchers: dict[str, Batcher] = {}
        self._models: dict[tuple[str, str], ModelSlot] = {}
        for offer in offers:
            batcher = self._batchers.get(offer.card.id) or self._add_batcher(offer.card.id)
            self._models[offer.spec.name, offer.card.id] = ModelSlot(offer, batcher, self._manager)
        telemetry.watch(self)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._batchers)

    @property
    def loading_since(self) -> float | None:
        """When the load in progress started, by time.monotonic()."""
        return self._manager.loading_since

    @property
    def batchers(self) -> tuple[Batcher, ...]:
        return tuple(self._batchers.values())

    @property
    def all(self) -> tuple[ModelSlot, ...]:
        return tuple(self._models.values())

    @property
    def loaded(self) -> frozenset[str]:
        """Ids of the models that are loaded for all of their tasks."""
        return self._loaded_snapshot()[0]

    @property
    def loaded_ids(self) -> str:
        """The same ids, sorted and separated by commas."""
        return self._loaded_snapshot()[1]

    @property
    def is_any_available(self) -> bool:
        """Whether any model can answer now or after a load; remote models may all be unavailable."""
        return not self._models or not all(
            isinstance(model.failure, UnavailableReason) for model in self._models.values()
        )

    @property
    def present(self) -> int:
        """Calls that wait or run."""
        return sum([batcher.present for batcher in self._batchers.values()])

    @property
    def waiting(self) -> int:
        return sum(batcher.waiting for batcher in self._batchers.values())

    @property
    def running(self) -> int:
        return sum(batcher.running for batcher in self._batchers.values())

    @property
    def free_bytes(self) -> int:
        """Memory available to further models; 0 until it is known."""
        return self._manager.free_bytes

    @property
    def depths(self) -> Mapping[tuple[str, str], int]:
        """Number of calls by model and state: "waiting" or "running"."""
        waiting = {(batcher.model_id, "waiting"): batcher.waiting for batcher in self.batchers}
        return waiting | {(batcher.model_id, "running"): batcher.running for batcher in self.batchers}

    @property
    def memory(self) -> Mapping[tuple[str, str], int]:
        """Bytes by device and kind: "models" (in use) or "budget"."""
        return self._manager.memory

    @property
    def utilization(self) -> Mapping[str, float]:
        """Recent utilization of each device, 0 to 1, where it is known."""
        return self._manager.utilization

    def get(self, task: str, model_id: str) -> ModelSlot:
        return self._models[task, model_id]

    async def check_placements(self) -> None:
        """Checks that the configured device of each model exists.

        Raises:
            FailedPrecondition: LOAD_FAILED, a device does not exist.
        """
        await self._manager.check_placements(self._batchers)

    async def load(self, model_ids: Iterable[str]) -> bool:
        """Loads models in the given order while memory lasts; returns False if none could be loaded."""
        requested = [model for model_id in model_ids for model in self._models.values() if model.id == model_id]
        outcomes = [await self._load(model) for model in requested if self._has_memory_for(model)]
        return not requested or any(outcomes)

    def close(self) -> None:
        """Ends threads and model processes, without waiting for them."""
        self._manager.close()
        for model in self._models.values():
            model.end_process()
        for batcher in self._batchers.values():
            batcher.close()

    def _loaded_snapshot(self) -> tuple[frozenset[str], str]:
        changes, loaded, ids = self._loaded
        if changes != self._manager.changes:
            loaded = frozenset(self._batchers) - {m.id for m in self._models.values() if m.state is not State.READY}
            ids = ",".join(sorted(loaded))
            self._loaded = self._manager.changes, loaded, ids
        return loaded, ids

    def _add_batcher(self, model_id: str) -> Batcher:
        limits = self._limits
        composer = BatchComposer(background_seconds=limits.background_seconds)
        batcher = Batcher(model_id, limit=limits.calls(), composer=composer)
        batcher.free_memory = partial(self._manager.free_memory, batcher)
        self._batchers[model_id] = batcher
        return batcher

    def _has_memory_for(self, model: ModelSlot) -> bool:
        if self._manager.has_memory_for(model):
            return True
        log.info("model not preloaded: the memory budget is used up", model=model.id, task=model.task)
        return False

    async def _load(self, model: ModelSlot) -> bool:
        try:
            async with model.use():
                return True
        except FailedPrecondition:
            return False
