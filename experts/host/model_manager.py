"""All models of one expert: loads each on its first use, one at a time, and evicts others for it.

A ModelSlot is one model for one task, in memory or not; the ModelManager has them all.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from functools import partial

import structlog

from experts.host import load_context, telemetry
from experts.host.active_calls import ActiveCall, ProgressUpdate
from experts.host.batch_composer import BatchComposer
from experts.host.batcher import Batcher
from experts.host.device_memory import DeviceMemories, DeviceMemory
from experts.host.devices import BATCH_ITEMS, CPU, MAX_WAITING, CpuOnly, Devices, Placement, Placements
from experts.host.expert import Offer
from experts.host.handler import RemoteHandler, UnavailableReason
from experts.host.latency_model import TOLERANCE, LatencyStats
from experts.host.load_context import ENGINE_CHOICE, ComputeOptions, LoadContext
from experts.host.loaded_model import LoadedModel
from experts.host.metering import Pools
from experts.host.model_errors import is_out_of_memory
from services.common.errors import FailedPrecondition, ServiceError

log = structlog.get_logger(__name__)

Clock = Callable[[], float]

EVICTION_TIMEOUT_SECONDS = 30.0

FAILURE_SECONDS = 30.0
"""Delay before the load of a model that failed to load is tried again."""


class State(Enum):
    LOADABLE = "loadable"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class LoadFailure:
    """Why a model did not load."""

    message: str
    remedy: str
    until: float
    """When the load may be tried again, on the manager's clock."""


class ModelSlot:
    """One model for one task, loaded on first use and unloaded on eviction; the Resident of its device's memory."""

    def __init__(self, offer: Offer, batcher: Batcher, manager: "ModelManager") -> None:
        self.offer, self.batcher = offer, batcher
        self.id, self.task = offer.card.id, offer.spec.name
        self.latency = LatencyStats()
        self.loaded_bytes = offer.card.loaded_bytes
        """Memory use when loaded: as the card states, then as measured at the last load."""
        self.shared_bytes: Mapping[str, int] = {}
        """Bytes of models that it shares with others, as reported at the last load."""
        self.revision = offer.card.revision
        """The card's revision, or the commit that was loaded last; empty until it is known."""
        self.load_seconds = 0.0
        self.loaded_at = self.used_at = 0.0
        self.load_progress: ProgressUpdate | None = None
        """Progress of the load in progress, if any."""
        self._manager = manager
        self._outcome: LoadedModel | LoadFailure | None = None
        self._load: asyncio.Task[LoadedModel | LoadFailure | None] | None = None
        self._active = self._waiting = 0
        self._accepting = asyncio.Event()
        self._accepting.set()
        self._load_observers: set[ActiveCall | None] = set()

    @property
    def state(self) -> State:
        if self.failure:
            return State.FAILED
        return State.LOADABLE if self._current_outcome is None else State.READY

    @property
    def failure(self) -> LoadFailure | UnavailableReason | None:
        """Why it did not load, until the next attempt is due, or why it is unavailable although it is loaded."""
        outcome = self._current_outcome
        return outcome.unavailable_reason if isinstance(outcome, LoadedModel) else outcome

    def check_revision(self, revision: str) -> None:
        """Checks that the model has the requested revision; an empty one accepts any.

        Raises:
            FailedPrecondition: REVISION.
        """
        if revision not in ("", self.revision or revision):
            raise FailedPrecondition(
                f"{self.id} is available at revision {self.revision}, not {revision}",
                reason="REVISION",
                remedy="request the available revision, or none",
            )

    @property
    def is_idle(self) -> bool:
        """Whether no call uses it or waits for it."""
        return not self._active and not self._waiting

    @property
    def is_unused(self) -> bool:
        """Whether no call uses it now."""
        return not self._active

    def use(self, call: ActiveCall | None = None) -> AbstractAsyncContextManager[LoadedModel]:
        """Returns the loaded model, which stays loaded within the block; concurrent uses share one load.

        Args:
            call: receives the progress of the load.

        Raises:
            FailedPrecondition: LOAD_FAILED, now or within the last FAILURE_SECONDS.
        """
        return _Use(self, call)

    def accept_calls(self, *, accepting: bool) -> None:
        """Admits further calls, or keeps them waiting; active calls continue."""
        if accepting:
            self._accepting.set()
        else:
            self._accepting.clear()

    def set_loaded(self, loaded: LoadedModel, used_bytes: int, *, seconds: float) -> None:
        """Records a successful load, the bytes it took in memory, and its duration."""
        if not self.loaded_bytes / TOLERANCE <= used_bytes <= self.loaded_bytes * TOLERANCE:
            self.loaded_bytes = used_bytes
        self.shared_bytes = loaded.shared_bytes
        self.revision = self.offer.card.revision or loaded.revision
        self._outcome, self.load_seconds = loaded, seconds
        self.loaded_at = self.used_at = time.monotonic()

    async def unload(self) -> None:
        """Frees its memory; no call may be using it."""
        holder, self._outcome = [self._outcome], None
        self._manager.notify_change()
        await self.batcher.thread.run(_close, self.batcher, holder)

    def end_process(self) -> None:
        """Ends the model's own process, if it has one, when the expert shuts down."""
        if isinstance(self._outcome, LoadedModel):
            self._outcome.end_process()

    def report_progress(self, fraction: float, message: str = "") -> None:
        """Reports the progress of its load; callable from any thread."""
        self.load_progress = ProgressUpdate(fraction, message)
        for call in tuple(self._load_observers):
            if call:
                call.progress(fraction, message)

    async def acquire(self, call: ActiveCall | None) -> LoadedModel:
        """As `use`; must be followed by `release`."""
        self._waiting += 1
        try:
            while True:
                await self._accepting.wait()
                outcome = self._current_outcome or await self._load_once(call)
                if isinstance(outcome, LoadFailure):
                    raise self._load_error(outcome)
                if outcome and outcome is self._outcome and self._accepting.is_set():  # else it was evicted meanwhile
                    self._active += 1
                    return outcome
        finally:
            self._waiting -= 1

    def release(self) -> None:
        self._active -= 1
        self.used_at = time.monotonic()
        if not self._active:
            self._manager.notify_idle()

    @property
    def _current_outcome(self) -> LoadedModel | LoadFailure | None:
        """The outcome of the last load; None if there was none, or it failed and may be tried again."""
        if isinstance(self._outcome, LoadFailure) and self._manager.clock() >= self._outcome.until:
            return None
        return self._outcome

    async def _load_once(self, call: ActiveCall | None) -> LoadedModel | LoadFailure | None:
        if call:
            update = self.load_progress or ProgressUpdate()
            call.progress(update.fraction, update.message or "loading the model")
            self._load_observers.add(call)
        if self._load is None:
            self.load_progress = ProgressUpdate()
            self._load = asyncio.create_task(self._run_load(), name=f"load-{self.id}")
        try:
            return await asyncio.shield(self._load)  # the load continues when one of its waiters is cancelled
        finally:
            self._load_observers.discard(call)

    async def _run_load(self) -> LoadedModel | LoadFailure | None:
        started_at = time.monotonic()
        try:
            await self._manager.load(self)
        except ServiceError as error:
            log.warning("model not loaded", model=self.id, task=self.task, error=error.message)
            self._outcome = self._failure_of(error.message, error.remedy)
        except ModuleNotFoundError as error:
            log.exception("model not loaded", model=self.id, task=self.task)
            self._outcome = self._failure_of(str(error), "install the extra named after the expert")
        except Exception as error:
            log.exception("model not loaded", model=self.id, task=self.task)
            self._outcome = self._failure_of(type(error).__name__, "see the log of the expert for the cause")
        else:
            facts = {"seconds": round(self.load_seconds, 3), "bytes": self.loaded_bytes}
            log.info("model loaded", model=self.id, task=self.task, **facts)
        finally:
            telemetry.record_load(
                self.id, time.monotonic() - started_at, succeeded=isinstance(self._outcome, LoadedModel)
            )
            self._load = self.load_progress = None
            self._manager.notify_change()
        return self._outcome

    def _failure_of(self, cause: str, remedy: str) -> LoadFailure:
        until = self._manager.clock() + FAILURE_SECONDS
        return LoadFailure(f"cannot load model {self.id}: {cause}", remedy, until)

    def _load_error(self, failure: LoadFailure) -> FailedPrecondition:
        wait = timedelta(seconds=max(0.0, failure.until - self._manager.clock()))
        return FailedPrecondition(failure.message, remedy=failure.remedy, reason="LOAD_FAILED", retry_after=wait)


class _Use(AbstractAsyncContextManager[LoadedModel]):
    __slots__ = ("_call", "_slot")

    def __init__(self, slot: ModelSlot, call: ActiveCall | None) -> None:
        self._slot, self._call = slot, call

    async def __aenter__(self) -> LoadedModel:
        return await self._slot.acquire(self._call)

    async def __aexit__(self, *_: object) -> None:
        self._slot.release()


def _close(batcher: Batcher, holder: "list[LoadedModel | LoadFailure | None]") -> None:
    """Closes the model on its own thread, and drops the last reference to it there."""
    batcher.drain()  # a batch whose callers have left may still be on the device
    loaded = holder.pop()
    if isinstance(loaded, LoadedModel):
        try:
            loaded.close()
        except Exception:
            log.exception("model cleanup failed")


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


class ModelManager:
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
        self.clock = clock
        self.changed = asyncio.Event()
        """Set when a model was loaded or unloaded, or failed to load; cleared by the observer."""
        self.loading_since: float | None = None
        """When the load in progress started, by time.monotonic()."""
        self._devices, self._limits = devices or CpuOnly(), limits
        self._placements, self._pools = Placements(placements), Pools(pool)
        self._memories: DeviceMemories[ModelSlot] = DeviceMemories(
            self._devices, budget_bytes=limits.memory_bytes, batch_scale=limits.batch_scale
        )
        self._load_lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changes = 0
        self._loaded: tuple[int, frozenset[str], str] = (-1, frozenset(), "")
        self._batchers: dict[str, Batcher] = {}
        self._models: dict[tuple[str, str], ModelSlot] = {}
        for offer in offers:
            batcher = self._batchers.get(offer.card.id) or self._add_batcher(offer.card.id)
            self._models[offer.spec.name, offer.card.id] = ModelSlot(offer, batcher, self)
        telemetry.watch(self)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._batchers)

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
        return self._memories.free_bytes

    @property
    def depths(self) -> Mapping[tuple[str, str], int]:
        """Number of calls by model and state: "waiting" or "running"."""
        waiting = {(batcher.model_id, "waiting"): batcher.waiting for batcher in self.batchers}
        return waiting | {(batcher.model_id, "running"): batcher.running for batcher in self.batchers}

    @property
    def memory(self) -> Mapping[tuple[str, str], int]:
        """Bytes by device and kind: "models" (in use) or "budget"."""
        return self._memories.bytes_by_kind

    @property
    def utilization(self) -> Mapping[str, float]:
        """Recent utilization of each device, 0 to 1, where it is known."""
        return self._memories.utilization

    def get(self, task: str, model_id: str) -> ModelSlot:
        return self._models[task, model_id]

    async def check_placements(self) -> None:
        """Checks that the configured device of each model exists.

        Raises:
            FailedPrecondition: LOAD_FAILED, a device does not exist.
        """
        for placement in {self._placements.of(model_id) for model_id in self._batchers}:
            await self._memories.check(placement)

    async def preload(self, model_ids: Iterable[str]) -> bool:
        """Loads models in the given order while memory lasts; returns False if none could be loaded."""
        requested = [model for model_id in model_ids for model in self._models.values() if model.id == model_id]
        outcomes = [await self._preload(model) for model in requested if self._has_memory_for(model)]
        return not requested or any(outcomes)

    async def load(self, model: ModelSlot) -> None:
        """Loads a model after earlier loads, once there is memory for it.

        Loads do not overlap: imports on several threads at once can deadlock.

        Raises:
            Exception: as raised by its loader.
        """
        self._loop = asyncio.get_running_loop()
        async with self._load_lock:
            placement = self._placements.of(model.id)
            memory = await self._memories.select(placement)
            dtype = placement.dtype or self._limits.compute.dtype
            await memory.evict_for(_expected_bytes(model, memory, dtype))
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
        """Must be called when the state of a model or its unavailable_reason changes."""
        self._changes += 1
        self.changed.set()

    def notify_idle(self) -> None:
        """Must be called when a model is no longer used."""
        self._memories.notify_idle()

    def close(self) -> None:
        """Ends threads and model processes, without waiting for them."""
        self._memories.close()
        for model in self._models.values():
            model.end_process()
        for batcher in self._batchers.values():
            batcher.close()

    def _loaded_snapshot(self) -> tuple[frozenset[str], str]:
        changes, loaded, ids = self._loaded
        if changes != self._changes:
            loaded = frozenset(self._batchers) - {m.id for m in self._models.values() if m.state is not State.READY}
            ids = ",".join(sorted(loaded))
            self._loaded = self._changes, loaded, ids
        return loaded, ids

    def _add_batcher(self, model_id: str) -> Batcher:
        limits = self._limits
        composer = BatchComposer(background_seconds=limits.background_seconds)
        batcher = Batcher(model_id, limit=limits.calls(), composer=composer)
        batcher.free_memory = partial(self._free_memory, batcher)
        self._batchers[model_id] = batcher
        return batcher

    def _has_memory_for(self, model: ModelSlot) -> bool:
        """Whether the model probably fits without evicting another."""
        if self._memories.probably_fits(model.loaded_bytes):
            return True
        log.info("model not preloaded: the memory budget is used up", model=model.id, task=model.task)
        return False

    async def _preload(self, model: ModelSlot) -> bool:
        try:
            async with model.use():
                return True
        except FailedPrecondition:
            return False

    async def _load_with_retry(
        self, memory: DeviceMemory[ModelSlot], model: ModelSlot, placement: Placement
    ) -> tuple[LoadedModel, int]:
        """Loads the model; if it runs out of memory, evicts idle models and tries once more."""
        try:
            return await model.batcher.thread.run(self._load_and_measure, model, memory, placement.dtype)
        except Exception as error:
            if not is_out_of_memory(error) or not await memory.evict_idle():
                raise
        return await model.batcher.thread.run(self._load_and_measure, model, memory, placement.dtype)

    def _load_and_measure(
        self, model: ModelSlot, memory: DeviceMemory[ModelSlot], dtype: str
    ) -> tuple[LoadedModel, int]:
        """Returns the loaded model and the bytes that it takes; on its thread."""
        device, scale = memory.device, memory.batch_scale
        before = self._memories.used_bytes(device)
        context = LoadContext(
            model.offer.card.revision,
            model.report_progress,
            model.task,
            model.id,
            device,
            model.offer.compute.on(device, replace(self._limits.compute, dtype=dtype)),
            model.offer.pipeline,
            scale,
        )
        with load_context.use(context):
            handler = model.offer.loader(model.id, device)
        is_remote = isinstance(handler, RemoteHandler)
        pool = self._pools.remote if is_remote else self._pools.of(device, self._devices.product)
        loaded = LoadedModel(handler, pool, batch_items=self._limits.items(scale), batch_scale=scale)
        measured = self._memories.used_bytes(device) - before - memory.expected_bytes(0, loaded.shared_bytes)
        return loaded, loaded.memory_bytes or max(0, measured)

    def _free_memory(self, batcher: Batcher) -> None:
        """Evicts idle models on the devices of a batcher's models; must be called on the batcher's thread."""
        if self._loop:
            others = self._memories.evict_others(lambda model: model.batcher is batcher)
            asyncio.run_coroutine_threadsafe(others, self._loop).result(EVICTION_TIMEOUT_SECONDS)


def _expected_bytes(model: ModelSlot, memory: DeviceMemory[ModelSlot], dtype: str) -> int:
    """Expected memory use: measured at the last load, stated by the card, or estimated from the parameter count.

    Args:
        model: about to be loaded.
        memory: of its device.
        dtype: number type that the operator chose; empty leaves it to the card and the engine.
    """
    if model.loaded_bytes:
        return memory.expected_bytes(model.loaded_bytes, model.shared_bytes)
    chosen = model.offer.compute.on(memory.device, ComputeOptions(dtype)).dtype
    is_float32 = chosen == "float32" or (memory.device == CPU and not chosen)
    stated = model.offer.weight_bytes.get("float32" if is_float32 else "float16", 0)
    return stated or model.offer.card.parameter_count * (4 if is_float32 else 2)
