"""The calls of one model: how many it takes, and the thread on which they run, in batches.

The thread takes the next batch by itself, so that between two of them it waits for nobody. There is no delay to make
batches larger: what came while one ran is the next.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from opentelemetry.trace import SpanContext

from experts.host import telemetry
from experts.host.active_calls import CallUnderWay, Together
from experts.host.batch_composer import Composer, Member
from experts.host.isolation import in_call
from experts.host.loaded_model import Loaded
from experts.host.model_errors import is_out_of_memory
from experts.host.threads import Threads, sendable
from services.common.errors import DeadlineExceeded, ModelFailed, Overloaded

log = structlog.get_logger(__name__)

SHORTEST_WAIT, LONGEST_WAIT = 0.1, 30.0
"""Seconds after which a refused caller may be told to come back."""

_FADE = 0.9


@dataclass(frozen=True)
class Ran:
    """What a batch gave one of its members."""

    raw: Any
    seconds: float
    """Of the whole batch."""
    share: float
    """This member's part of these seconds."""


class Queue:
    """Where the calls of one model wait for its thread.

    Args:
        model_id: whose calls they are.
        limit: how many it takes at a time; of background calls only three quarters of that.
        composer: puts the batches together.
    """

    def __init__(self, model_id: str, *, limit: int, composer: Composer) -> None:
        self.thread = Threads(model_id)
        """For loading too: an engine may care on which thread it lives."""
        self.busy_since: float | None = None
        """When the call began that the device is at, on time.monotonic()'s clock."""
        self.model_id, self._limit = model_id, limit
        self.make_room: Callable[[], None] = lambda: None
        """Frees memory; called on the thread when there is too little of it."""
        self._composer = composer
        self._lock = threading.Lock()
        self._waiting: list[Member] = []
        self._present = self._running = 0
        self._each = 0.0
        self._at: Loaded | None = None

    @property
    def running(self) -> int:
        """Calls that the thread is at, even if nobody waits for them any more."""
        return self._running

    @property
    def present(self) -> int:
        """Calls that have a place."""
        return self._present

    @property
    def waiting(self) -> int:
        return max(0, self._present - self._running)

    @property
    def quiet(self) -> bool:
        """Whether there is one call at most, and the thread has nothing to do."""
        return self._present <= 1 and not self._running

    @property
    def shared(self) -> bool:
        """Whether there is more than one call."""
        return self._present > 1

    def kill(self, seconds: float) -> bool:
        """Ends the process of the model that has been at a batch for so long, if it has one."""
        kill = getattr(self._at.handler, "kill", None) if self._at else None
        if kill:
            kill(seconds)
        return bool(kill)

    @contextmanager
    def place(self, *, background: bool = False) -> Iterator[None]:
        """A place for one call as long as the block lasts.

        Raises:
            Overloaded: the limit is reached.
        """
        if self._present >= (max(1, self._limit * 3 // 4) if background else self._limit):
            delay = min(max(self._present * self._each, SHORTEST_WAIT), LONGEST_WAIT)
            raise Overloaded(
                f"{self._present} calls wait for {self.model_id} already",
                remedy="try again later, or let the operator run another replica or raise EXPERT_MAX_WAITING",
                retry_after=timedelta(seconds=delay),
            )
        self._present += 1
        try:
            yield
        finally:
            self._present -= 1

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """One call of those in place runs within the block, without the thread."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def run_alone(self, model: Loaded, item: Any, cost: float, call: CallUnderWay) -> Ran:
        """What the model makes of an item, at once; to be called on the thread."""
        if call.cancelled:
            raise asyncio.CancelledError  # nobody will hear of it
        try:
            return self._run(model, [item], cost, call)[0]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        self._make_room()
        return self._run(model, [item], cost, call)[0]

    def run_concurrently(self, model: Loaded, item: Any, call: CallUnderWay) -> Ran:
        """What the model makes of an item, next to other calls; on the current thread.

        Raises:
            ModelFailed: it made nothing of it.
            Exception: whatever the model raised.
        """
        began = time.monotonic()
        with telemetry.running(self.model_id, 1, ()), model.computing(call), in_call(call):
            raws = model.handler.run([item], call)  # type: ignore[union-attr]  # a Handler, since it is concurrent
        seconds = time.monotonic() - began
        self._check_count(raws, 1)
        telemetry.ran(self.model_id, 1, seconds)
        with self._lock:
            self._learn(seconds)
        return Ran(raws[0], seconds, seconds)

    def enter(self, *members: Member) -> None:
        """Lets calls wait for their batch; from any thread. One that is not settled has been cancelled."""
        with self._lock:
            self._waiting += members
        for _ in members:
            self.thread.post(self._turn)

    def _turn(self) -> None:
        """Runs a batch, if somebody still waits; on the thread."""
        try:
            batch = self._take()
        except Exception as error:  # noqa: BLE001  # a handler that says nonsense of its batches
            batch = self._all()
            _tell(batch, [sendable(error) for _ in batch])
            return
        if not batch:
            return
        model, call = batch[0].model, Together([member.call for member in batch])
        cost = model.batching.cost([member.cost for member in batch])
        try:
            items = [member.item for member in batch]
            members = telemetry.members_of(batch)
            outcomes: Sequence[Ran | Exception] = batch[0].context.run(self._run, model, items, cost, call, members)
        except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
            self._failed(batch, cost, sendable(error))
        else:
            _tell(batch, outcomes)

    def _take(self) -> list[Member]:
        """The next batch; those who need no answer any more are left out."""
        with self._lock:
            waiting = [member for member in self._waiting if not member.call.cancelled]
            now = time.monotonic()
            late = [member for member in waiting if member.call.deadline <= now]
            waiting = [member for member in waiting if member not in late] if late else waiting
            batch = self._composer.compose(waiting) if waiting else []
            self._waiting = [member for member in waiting if member not in batch]
        if late:
            _tell(late, [_too_late(self.model_id) for _ in late])
        return batch

    def _all(self) -> list[Member]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    def _run(
        self,
        model: Loaded,
        items: Sequence[Any],
        cost: float,
        call: CallUnderWay | Together,
        members: Sequence[SpanContext] = (),
    ) -> list[Ran]:
        self._running += len(items)
        self._at, self.busy_since = model, (began := time.monotonic())
        try:
            with telemetry.running(self.model_id, len(items), members), model.computing(call):
                raws = model.handler.run(items, call)  # type: ignore[union-attr]  # who is asked never comes here
            seconds = time.monotonic() - began
        finally:
            self._running -= len(items)
            self._at = self.busy_since = None
        self._check_count(raws, len(items))
        model.ran(cost, seconds)
        telemetry.ran(self.model_id, len(items), seconds)
        share = seconds / len(items)
        self._learn(share)
        return [Ran(raw, seconds, share) for raw in raws]

    def _check_count(self, raws: Sequence[Any], count: int) -> None:
        if len(raws) != count:
            raise ModelFailed(
                f"model {self.model_id} gave {len(raws)} results for {count} inputs",
                remedy="report it to whoever made the expert",
            )

    def _learn(self, share: float) -> None:
        """Notes what one call takes."""
        self._each = self._each * _FADE + share * (1 - _FADE) if self._each else share

    def _failed(self, batch: Sequence[Member], cost: float, error: Exception) -> None:
        """Gives every member another chance, smaller or alone; one that had them all hears of the error."""
        if is_out_of_memory(error) and not any(member.retried for member in batch):
            self._make_room()
            batch[0].model.did_not_fit(cost)
            for member in batch:
                member.retried = True
        elif len(batch) > 1:
            for member in batch:
                member.alone = True
        else:
            _tell(batch, [error])
            return
        self.enter(*batch)

    def _make_room(self) -> None:
        try:
            self.make_room()
        except Exception:
            log.exception("no room could be made", model=self.model_id)


def _tell(batch: Sequence[Member], outcomes: Sequence[Ran | Exception]) -> None:
    for member, outcome in zip(batch, outcomes, strict=True):
        member.settle(outcome)


def _too_late(model_id: str) -> DeadlineExceeded:
    return DeadlineExceeded(f"the caller's deadline passed before {model_id} came to it", remedy="allow more time")
