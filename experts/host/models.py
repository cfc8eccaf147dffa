"""The models of one expert: each is loaded once, when first asked for, and says how it is."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

import structlog

from experts.host.batching import Queue
from experts.host.composing import Composer
from experts.host.handler import Loader
from experts.host.loaded import Loaded
from experts.host.times import Times
from services.runtime.errors import FailedPrecondition, ServiceError

log = structlog.get_logger(__name__)

FAILURE_SECONDS = 30.0
"""How long a model that did not load is not tried again."""

DEVICE = "cpu"

Clock = Callable[[], float]


class State(Enum):
    LOADABLE = "loadable"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class Failure:
    """Why a model did not load."""

    message: str
    remedy: str
    until: float
    """When it may be tried again, on the models' clock."""


class Model:
    """One model for one kind of task."""

    def __init__(self, task: str, model_id: str, loader: Loader, queue: Queue, loads: "Loads") -> None:
        self.id = model_id
        self.queue = queue
        self.times = Times()
        self.task, self._loader, self._loads = task, loader, loads
        self._outcome: Loaded | Failure | None = None
        self._loading: asyncio.Task[Loaded | Failure] | None = None

    @property
    def state(self) -> State:
        if self.failure:
            return State.FAILED
        return State.LOADABLE if self._settled is None else State.READY

    @property
    def failure(self) -> Failure | None:
        """Why it did not load, for as long as that is remembered."""
        return self._settled if isinstance(self._settled, Failure) else None

    async def handler(self) -> Loaded:
        """The model, loaded. However many ask at once, it is loaded once; who stops waiting does not stop it.

        Raises:
            FailedPrecondition: LOAD_FAILED, now or a short while ago.
        """
        outcome = self._settled
        if outcome is None:
            outcome = await self._load_once()
        if isinstance(outcome, Failure):
            wait = timedelta(seconds=max(0.0, outcome.until - self._loads.clock()))
            raise FailedPrecondition(outcome.message, remedy=outcome.remedy, reason="LOAD_FAILED", retry_after=wait)
        return outcome

    @property
    def _settled(self) -> Loaded | Failure | None:
        if isinstance(self._outcome, Failure) and self._loads.clock() >= self._outcome.until:
            return None
        return self._outcome

    async def _load_once(self) -> Loaded | Failure:
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(), name=f"load-{self.id}")
        return await asyncio.shield(self._loading)

    async def _load(self) -> Loaded | Failure:
        try:
            async with self._loads.turn:
                self._outcome = outcome = await self._tried()
        finally:
            self._loading = None
        self._loads.changed.set()
        return outcome

    async def _tried(self) -> Loaded | Failure:
        began = time.monotonic()
        try:
            handler = await self.queue.thread.run(self._loader, self.id, DEVICE)
        except ServiceError as error:
            log.warning("model not loaded", model=self.id, task=self.task, error=error.message)
            return self._failed(error.message, error.remedy)
        except Exception as error:
            log.exception("model not loaded", model=self.id, task=self.task)
            return self._failed(type(error).__name__, "look for the cause in the log of the expert")
        seconds = round(time.monotonic() - began, 3)
        log.info("model loaded", model=self.id, task=self.task, seconds=seconds)
        return Loaded(handler)

    def _failed(self, cause: str, remedy: str) -> Failure:
        until = self._loads.clock() + FAILURE_SECONDS
        return Failure(f"model {self.id} could not be loaded: {cause}", remedy, until)


class Loads:
    """What loading models share. They take turns: imports on several threads at once can deadlock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.turn = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set whenever a model was loaded, or was not; cleared by who follows it."""


class Models:
    """All models of an expert, by task and id. Those of one id share a queue and a thread."""

    def __init__(
        self,
        loaders: Iterable[tuple[str, str, Loader]],
        *,
        max_waiting: int,
        batch_items: int = 32,
        background_seconds: float = 0.05,
        clock: Clock = time.monotonic,
    ) -> None:
        """Given (task, model id, loader); max_waiting is for each id."""
        self._loads = Loads(clock)
        self._queues: dict[str, Queue] = {}
        self._models: dict[tuple[str, str], Model] = {}
        for task, model_id, loader in loaders:
            if model_id not in self._queues:
                composer = Composer(items=batch_items, background_seconds=background_seconds)
                self._queues[model_id] = Queue(model_id, limit=max_waiting, composer=composer)
            self._models[task, model_id] = Model(task, model_id, loader, self._queues[model_id], self._loads)

    @property
    def changed(self) -> asyncio.Event:
        return self._loads.changed

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._queues)

    @property
    def loaded(self) -> frozenset[str]:
        """Ids of the models that are loaded for every task they are offered for."""
        return frozenset(self._queues) - {m.id for m in self._models.values() if m.state is not State.READY}

    @property
    def waiting(self) -> int:
        return sum(queue.waiting for queue in self._queues.values())

    @property
    def running(self) -> int:
        return sum(queue.running for queue in self._queues.values())

    def get(self, task: str, model_id: str) -> Model:
        return self._models[task, model_id]

    async def load(self, model_ids: Iterable[str]) -> bool:
        """Loads models one after the other, in the order given; False if none of them could be."""
        outcomes = [await self._load(model_id) for model_id in model_ids]
        return not outcomes or any(outcomes)

    async def _load(self, model_id: str) -> bool:
        loaded = True
        for model in self._models.values():
            if model.id == model_id:
                try:
                    await model.handler()
                except FailedPrecondition:
                    loaded = False
        return loaded

    def close(self) -> None:
        """Lets the threads end; waits for none."""
        for queue in self._queues.values():
            queue.thread.close()
