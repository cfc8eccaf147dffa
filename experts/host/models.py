"""All models of one expert."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from experts.host import telemetry
from experts.host.batch_composer import BatchComposer
from experts.host.batcher import Batcher
from experts.host.devices import CpuOnly, Devices, Placements
from experts.host.expert import Offer
from experts.host.handler import UnavailableReason
from experts.host.metering import Pools
from experts.host.model_manager import Clock, ModelManager
from experts.host.model_slot import ModelSlot, State
from services.common.errors import FailedPrecondition

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits that apply to every model; see the settings of the same names."""

    max_waiting: int = 64
    batch_items: int = 32
    background_seconds: float = 0.05
    memory_bytes: int = 0


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
        devices, memory = devices or CpuOnly(), limits.memory_bytes
        self._manager = ModelManager(
            devices, Placements(placements), memory_bytes=memory, pools=Pools(pool), clock=clock
        )
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
            batcher.thread.close()

    def _loaded_snapshot(self) -> tuple[frozenset[str], str]:
        changes, loaded, ids = self._loaded
        if changes != self._manager.changes:
            loaded = frozenset(self._batchers) - {m.id for m in self._models.values() if m.state is not State.READY}
            ids = ",".join(sorted(loaded))
            self._loaded = self._manager.changes, loaded, ids
        return loaded, ids

    def _add_batcher(self, model_id: str) -> Batcher:
        limits = self._limits
        composer = BatchComposer(items=limits.batch_items, background_seconds=limits.background_seconds)
        batcher = Batcher(model_id, limit=limits.max_waiting, composer=composer)
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
