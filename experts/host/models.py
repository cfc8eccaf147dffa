"""The models of one expert."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from experts.host import telemetry
from experts.host.batch_composer import Composer
from experts.host.batcher import Queue
from experts.host.devices import Devices, OnlyCpu, Places
from experts.host.expert import Offer
from experts.host.handler import Trouble
from experts.host.metering import Pools
from experts.host.model_manager import Clock, Loads
from experts.host.model_slot import Model, State
from services.common.errors import FailedPrecondition

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Limits:
    """What holds for every model; as in the settings."""

    max_waiting: int = 64
    batch_items: int = 32
    background_seconds: float = 0.05
    memory_bytes: int = 0


class Models:
    """All models of an expert, by task and id. Those of one id share a queue and a thread."""

    def __init__(
        self,
        offers: Iterable[Offer],
        limits: Limits,
        *,
        devices: Devices | None = None,
        places: str = "",
        pool: str = "",
        clock: Clock = time.monotonic,
    ) -> None:
        """Given what is offered, what the engine knows of devices, where models are to be, and what their pool is."""
        self._limits = limits
        devices, memory = devices or OnlyCpu(), limits.memory_bytes
        self._loads = Loads(devices, Places(places), memory_bytes=memory, pools=Pools(pool), clock=clock)
        self.changed = self._loads.changed
        """Set whenever a model was loaded, or was not, or was let go; cleared by who follows it."""
        self.tell = self._loads.tell
        """To be called when a model's trouble comes or goes."""
        self._loaded: tuple[int, frozenset[str], str] = (-1, frozenset(), "")
        self._queues: dict[str, Queue] = {}
        self._models: dict[tuple[str, str], Model] = {}
        for offer in offers:
            queue = self._queues.get(offer.card.id) or self._queue(offer.card.id)
            self._models[offer.spec.name, offer.card.id] = Model(offer, queue, self._loads)
        telemetry.watch(self)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._queues)

    @property
    def loading_since(self) -> float | None:
        """When the load began that is under way, on time.monotonic()'s clock."""
        return self._loads.since

    @property
    def queues(self) -> tuple[Queue, ...]:
        return tuple(self._queues.values())

    @property
    def all(self) -> tuple[Model, ...]:
        return tuple(self._models.values())

    @property
    def loaded(self) -> frozenset[str]:
        """Ids of the models that are loaded for every task they are offered for."""
        return self._counted()[0]

    @property
    def loaded_ids(self) -> str:
        """The same in one line, with commas between."""
        return self._counted()[1]

    @property
    def any_use(self) -> bool:
        """Whether any can answer now or once it is loaded; those that run elsewhere may all be in trouble."""
        return not self._models or not all(isinstance(model.failure, Trouble) for model in self._models.values())

    @property
    def present(self) -> int:
        """Calls that wait or run."""
        return sum([queue.present for queue in self._queues.values()])

    @property
    def waiting(self) -> int:
        return sum(queue.waiting for queue in self._queues.values())

    @property
    def running(self) -> int:
        return sum(queue.running for queue in self._queues.values())

    @property
    def free_bytes(self) -> int:
        """What models may still take of memory; 0 until that is known."""
        return self._loads.free_bytes

    @property
    def depths(self) -> Mapping[tuple[str, str], int]:
        """Calls, by model and state: waiting or running."""
        waiting = {(queue.model_id, "waiting"): queue.waiting for queue in self.queues}
        return waiting | {(queue.model_id, "running"): queue.running for queue in self.queues}

    @property
    def memory(self) -> Mapping[tuple[str, str], int]:
        """Bytes, by device and what they are: taken by models, or their budget there."""
        return self._loads.memory

    @property
    def use(self) -> Mapping[str, float]:
        """The share of the last moments in which each device computed, where somebody knows."""
        return self._loads.use

    def get(self, task: str, model_id: str) -> Model:
        return self._models[task, model_id]

    async def check_places(self) -> None:
        """Whether every model can compute where the operator wants it.

        Raises:
            FailedPrecondition: LOAD_FAILED, there is no such device.
        """
        await self._loads.check_places(self._queues)

    async def load(self, model_ids: Iterable[str]) -> bool:
        """Loads models one after the other, in the order given, while there is room; False if none could be."""
        wanted = [model for model_id in model_ids for model in self._models.values() if model.id == model_id]
        outcomes = [await self._load(model) for model in wanted if self._is_welcome(model)]
        return not wanted or any(outcomes)

    def close(self) -> None:
        """Lets models and threads end; waits for none."""
        self._loads.close()
        for model in self._models.values():
            model.end()
        for queue in self._queues.values():
            queue.thread.close()

    def _counted(self) -> tuple[frozenset[str], str]:
        changes, loaded, ids = self._loaded
        if changes != self._loads.changes:
            loaded = frozenset(self._queues) - {m.id for m in self._models.values() if m.state is not State.READY}
            ids = ",".join(sorted(loaded))
            self._loaded = self._loads.changes, loaded, ids
        return loaded, ids

    def _queue(self, model_id: str) -> Queue:
        limits = self._limits
        composer = Composer(items=limits.batch_items, background_seconds=limits.background_seconds)
        queue = Queue(model_id, limit=limits.max_waiting, composer=composer)
        queue.make_room = partial(self._loads.make_room, queue)
        self._queues[model_id] = queue
        return queue

    def _is_welcome(self, model: Model) -> bool:
        if self._loads.has_room_for(model):
            return True
        log.info("model is left until it is asked for: there is no room for all", model=model.id, task=model.task)
        return False

    async def _load(self, model: Model) -> bool:
        try:
            async with model.used():
                return True
        except FailedPrecondition:
            return False
