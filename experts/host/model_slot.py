"""One model for one kind of task: loaded once, when first asked for, kept while it is used, let go to make room."""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

import structlog

from experts.host import telemetry
from experts.host.active_calls import CallUnderWay, Step
from experts.host.batcher import Queue
from experts.host.expert import Offer
from experts.host.handler import Trouble
from experts.host.loaded_model import Loaded
from experts.host.timing import TOLERANCE, Times
from services.common.errors import FailedPrecondition, ServiceError

if TYPE_CHECKING:
    from experts.host.model_manager import Loads

log = structlog.get_logger(__name__)

FAILURE_SECONDS = 30.0
"""How long a model that did not load is not tried again."""


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
    """One model for one kind of task; to the room it is in, a Resident."""

    def __init__(self, offer: Offer, queue: Queue, loads: "Loads") -> None:
        self.offer, self.queue = offer, queue
        self.id, self.task = offer.card.id, offer.spec.name
        self.times = Times()
        self.loaded_bytes = offer.card.loaded_bytes
        """What it takes when loaded; measured whenever it is."""
        self.revision = offer.card.revision
        """The card's, else the commit that was loaded last; empty until that is known."""
        self.load_seconds = 0.0
        self.loaded_at = self.used_at = 0.0
        self.loading: Step | None = None
        """How far its load is, while there is one."""
        self._loads = loads
        self._outcome: Loaded | Failure | None = None
        self._load: asyncio.Task[Loaded | Failure | None] | None = None
        self._inside = self._waiting = 0
        self._open = asyncio.Event()
        self._open.set()
        self._watching: set[CallUnderWay | None] = set()

    @property
    def state(self) -> State:
        if self.failure:
            return State.FAILED
        return State.LOADABLE if self._settled is None else State.READY

    @property
    def failure(self) -> Failure | Trouble | None:
        """Why it did not load, for as long as that is remembered, or is no use for now."""
        settled = self._settled
        return settled.trouble if isinstance(settled, Loaded) else settled

    def check(self, revision: str) -> None:
        """Whether it is here at a revision; empty asks for any.

        Raises:
            FailedPrecondition: REVISION.
        """
        if revision not in ("", self.revision or revision):
            raise FailedPrecondition(
                f"{self.id} is here at revision {self.revision}, not {revision}",
                reason="REVISION",
                remedy="ask for that revision, or for none",
            )

    @property
    def idle(self) -> bool:
        """Nobody uses it, or waits to."""
        return not self._inside and not self._waiting

    @property
    def vacant(self) -> bool:
        """Nobody uses it now."""
        return not self._inside

    def used(self, call: CallUnderWay | None = None) -> AbstractAsyncContextManager[Loaded]:
        """The model, loaded, which stays so within the block. However many come at once, it is loaded once.

        Args:
            call: is told how far the load is.

        Raises:
            FailedPrecondition: LOAD_FAILED, now or a short while ago.
        """
        return _Use(self, call)

    def admit(self, *, admitting: bool) -> None:
        """Lets further calls in, or keeps them waiting; those inside are left in peace."""
        if admitting:
            self._open.set()
        else:
            self._open.clear()

    def came_in(self, loaded: Loaded, taken: int, *, seconds: float) -> None:
        """It is in memory now, where it takes so many bytes, and took so long to come."""
        if not self.loaded_bytes / TOLERANCE <= taken <= self.loaded_bytes * TOLERANCE:
            self.loaded_bytes = taken
        self.revision = self.offer.card.revision or loaded.revision
        self._outcome, self.load_seconds = loaded, seconds
        self.loaded_at = self.used_at = time.monotonic()

    async def unload(self) -> None:
        """Frees its memory; nobody may be using it."""
        holder, self._outcome = [self._outcome], None
        self._loads.tell()
        await self.queue.thread.run(_close, holder)

    def end(self) -> None:
        """The expert ends: a process of the model's own has to, too; what is in this one goes with it."""
        if isinstance(self._outcome, Loaded):
            self._outcome.end()

    def tell(self, fraction: float, message: str) -> None:
        """How far its load is; callable from any thread."""
        self.loading = Step(fraction, message)
        for call in tuple(self._watching):
            if call:
                call.progress(fraction, message)

    async def enter(self, call: CallUnderWay | None) -> Loaded:
        """As `used`; whoever comes in has to leave."""
        self._waiting += 1
        try:
            while True:
                await self._open.wait()
                outcome = self._settled or await self._load_once(call)
                if isinstance(outcome, Failure):
                    raise self._refusal(outcome)
                if outcome and outcome is self._outcome and self._open.is_set():  # else it had to leave meanwhile
                    self._inside += 1
                    return outcome
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._inside -= 1
        self.used_at = time.monotonic()
        if not self._inside:
            self._loads.freed()

    @property
    def _settled(self) -> Loaded | Failure | None:
        if isinstance(self._outcome, Failure) and self._loads.clock() >= self._outcome.until:
            return None
        return self._outcome

    async def _load_once(self, call: CallUnderWay | None) -> Loaded | Failure | None:
        if call:
            step = self.loading or Step()
            call.progress(step.fraction, step.message or "loading the model")
            self._watching.add(call)
        if self._load is None:
            self.loading = Step()
            self._load = asyncio.create_task(self._loaded(), name=f"load-{self.id}")
        try:
            return await asyncio.shield(self._load)  # who stops waiting does not stop it
        finally:
            self._watching.discard(call)

    async def _loaded(self) -> Loaded | Failure | None:
        began = time.monotonic()
        try:
            await self._loads.load(self)
        except ServiceError as error:
            log.warning("model not loaded", model=self.id, task=self.task, error=error.message)
            self._outcome = self._failed(error.message, error.remedy)
        except ModuleNotFoundError as error:
            log.exception("model not loaded", model=self.id, task=self.task)
            self._outcome = self._failed(str(error), "install what the expert needs: the extra of its name")
        except Exception as error:
            log.exception("model not loaded", model=self.id, task=self.task)
            self._outcome = self._failed(type(error).__name__, "look for the cause in the log of the expert")
        else:
            facts = {"seconds": round(self.load_seconds, 3), "bytes": self.loaded_bytes}
            log.info("model loaded", model=self.id, task=self.task, **facts)
        finally:
            telemetry.loaded(self.id, time.monotonic() - began, well=isinstance(self._outcome, Loaded))
            self._load = self.loading = None
            self._loads.tell()
        return self._outcome

    def _failed(self, cause: str, remedy: str) -> Failure:
        until = self._loads.clock() + FAILURE_SECONDS
        return Failure(f"model {self.id} could not be loaded: {cause}", remedy, until)

    def _refusal(self, failure: Failure) -> FailedPrecondition:
        wait = timedelta(seconds=max(0.0, failure.until - self._loads.clock()))
        return FailedPrecondition(failure.message, remedy=failure.remedy, reason="LOAD_FAILED", retry_after=wait)


class _Use(AbstractAsyncContextManager[Loaded]):
    __slots__ = ("_call", "_model")

    def __init__(self, model: Model, call: CallUnderWay | None) -> None:
        self._model, self._call = model, call

    async def __aenter__(self) -> Loaded:
        return await self._model.enter(self._call)

    async def __aexit__(self, *_: object) -> None:
        self._model.leave()


def _close(holder: "list[Loaded | Failure | None]") -> None:
    """Lets go of the model on its own thread, and of the last reference to it."""
    loaded = holder.pop()
    if isinstance(loaded, Loaded):
        try:
            loaded.close()
        except Exception:
            log.exception("a model failed to clean up")
