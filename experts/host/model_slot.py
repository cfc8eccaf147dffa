"""One model for one task: loaded once on first use, kept in memory while it is used, and unloaded on eviction."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

import structlog

from experts.host import telemetry
from experts.host.active_calls import ActiveCall, ProgressUpdate
from experts.host.batcher import Batcher
from experts.host.expert import Offer
from experts.host.handler import UnavailableReason
from experts.host.latency_model import TOLERANCE, LatencyStats
from experts.host.loaded_model import LoadedModel
from services.common.errors import FailedPrecondition, ServiceError

if TYPE_CHECKING:
    from experts.host.model_manager import ModelManager

log = structlog.get_logger(__name__)

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
    """One model for one task; the Resident of its device's memory."""

    def __init__(self, offer: Offer, batcher: Batcher, manager: "ModelManager") -> None:
        self.offer, self.batcher = offer, batcher
        self.id, self.task = offer.card.id, offer.spec.name
        self.latency = LatencyStats()
        self.loaded_bytes = offer.card.loaded_bytes
        self.shared_bytes: Mapping[str, int] = {}
        """Memory use when loaded: as the card states, then as measured at the last load."""
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
