"""Calls of one model: admission, and execution in batches on the model's thread.

The thread takes its next batch without waiting for the event loop. Batches are not delayed to become larger: the calls
that arrive while one batch runs form the next.

On an asynchronous device, the next batch is launched before the results of the last one are fetched: at once if at
least as many calls wait as are in the last batch, otherwise when the device has finished. Waiting costs nothing then,
and lets a small batch grow.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from opentelemetry.trace import Span, SpanContext

from experts.host import telemetry
from experts.host.active_calls import ActiveCall, BatchCall
from experts.host.batch_composer import BatchComposer, QueuedCall
from experts.host.handler import LaunchedBatch
from experts.host.isolation import use_call
from experts.host.loaded_model import LoadedModel
from experts.host.metering import cpus
from experts.host.model_errors import is_out_of_memory
from experts.host.threads import ThreadPool, ThreadSafeFuture, to_sendable_error
from services.common import tracing
from services.common.errors import DeadlineExceeded, ModelFailed, Overloaded

log = structlog.get_logger(__name__)

MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 30.0
"""Range of the retry delay in the error of a refused call."""

_DECAY = 0.9

_MAX_LAUNCHED = 2
"""Maximum batches on an asynchronous device: one that it computes, and one that it starts without waiting for us."""


@dataclass(frozen=True)
class BatchedResult:
    """Result of one call in a batch."""

    raw: Any
    seconds: float
    """Duration of the whole batch."""
    share: float
    """This call's share of the duration."""


@dataclass(eq=False)
class _Launched:
    """A batch on the device, whose results have not been fetched."""

    calls: list[QueuedCall]
    call: BatchCall
    cost: float
    batch: LaunchedBatch
    launched_at: float
    """By time.monotonic(), as the others."""
    metered_from: float
    """Start of its use of the device's pool, by the meter."""
    span: Span
    """Ends when the results are fetched."""
    finished_at: float | None = None
    """When the device had finished."""

    @property
    def model(self) -> LoadedModel:
        return self.calls[0].model

    def wait(self) -> None:
        """Waits until the device has finished; an error is raised again when the results are fetched."""
        with suppress(Exception):
            self.batch.wait()
        self.finished_at = self.finished_at or time.monotonic()

    def fetch(self) -> Sequence[Any]:
        """Returns the results, or raises an error, of the batch."""
        with tracing.use_span(self.span):
            return self.batch.fetch()


class _Outcomes:
    """Outcomes of calls that were queued together, in their order."""

    def __init__(self, count: int) -> None:
        self._outcomes: dict[int, BatchedResult | Exception] = {}
        self._count = count
        self._end: ThreadSafeFuture[list[BatchedResult | Exception]] = ThreadSafeFuture()
        self.all = self._end.future
        """Ends when the last one has been received."""

    def receive(self, index: int, outcome: BatchedResult | Exception) -> None:
        """Receives one outcome; on the device's thread."""
        self._outcomes[index] = outcome
        if len(self._outcomes) == self._count:
            self._end.set_result([self._outcomes.pop(index) for index in range(self._count)])


class Batcher:
    """Admits the calls of one model and runs them in batches on its thread.

    Args:
        model_id: the model.
        limit: number of calls, waiting and running, from which on further ones are refused; for background calls, three
            quarters of it.
        composer: composes the batches.
    """

    def __init__(self, model_id: str, *, limit: int, composer: BatchComposer) -> None:
        self.thread = ThreadPool(model_id)
        """Also loads the model, because engines may be bound to a thread."""
        self.busy_since: float | None = None
        """When the batch in progress started, by time.monotonic(); None while the thread is idle."""
        self.limit = limit
        """Number of admitted calls from which on further ones are refused."""
        self.model_id = model_id
        self.free_memory: Callable[[], None] = lambda: None
        """Frees device memory; called on the thread after a batch ran out of memory."""
        self._composer = composer
        self._lock = threading.Lock()
        self._waiting: list[QueuedCall] = []
        self._present = self._running = 0
        self._call_seconds = 0.0
        self._active_model: LoadedModel | None = None
        self._launched: deque[_Launched] = deque()
        self._finished_at = 0.0
        self._waiter: ThreadPool | None = None

    @property
    def running(self) -> int:
        """Calls in execution, including those whose caller has left."""
        return self._running

    @property
    def present(self) -> int:
        """Admitted calls, waiting or running."""
        return self._present

    @property
    def waiting(self) -> int:
        return max(0, self._present - self._running)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and at most one call has been admitted."""
        return self._present <= 1 and not self._running

    @property
    def has_multiple_calls(self) -> bool:
        """Whether more than one call has been admitted."""
        return self._present > 1

    def kill(self, seconds: float) -> bool:
        """Ends the process of a model whose batch has run for so long; returns False if it has no own process."""
        if not self._active_model or not self._active_model.handler.has_process:
            return False
        self._active_model.handler.kill(seconds)
        return True

    def capacity(self, *, background: bool = False) -> int:
        """Returns the number of calls, waiting and running, from which on further ones are refused."""
        return max(1, self.limit * 3 // 4) if background else self.limit

    @contextmanager
    def admit(self, count: int = 1, *, background: bool = False) -> Iterator[None]:
        """Admits calls for the duration of the block: all of them, if the limit allows one more.

        Several calls may thus exceed the limit once. If they had to fit, single calls that arrive all the time would
        take every slot that becomes free, and several would never be admitted.

        Raises:
            Overloaded: the limit is reached.
        """
        capacity = self.capacity(background=background)
        if self._present >= capacity:
            delay = min(max(self._present * self._call_seconds, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)
            raise Overloaded(
                f"{self.model_id} has {self._present} of at most {capacity} calls and cannot accept {count} more",
                remedy="try again later, or let the operator run another replica or raise EXPERT_MAX_WAITING",
                retry_after=timedelta(seconds=delay),
            )
        self._present += count
        try:
            yield
        finally:
            self._present -= count

    @contextmanager
    def count_running(self) -> Iterator[None]:
        """Counts one admitted call as running within the block, without using the thread."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def run_alone(self, model: LoadedModel, item: Any, cost: float, call: ActiveCall) -> BatchedResult:
        """Runs one item immediately; must be called on the model's thread."""
        if call.cancelled:
            raise asyncio.CancelledError  # the caller has left
        try:
            return self._run(model, [item], cost, call)[0]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        self._free_memory()
        return self._run(model, [item], cost, call)[0]

    def run_concurrently(self, model: LoadedModel, item: Any, call: ActiveCall) -> BatchedResult:
        """Runs one item concurrently with other calls, on the current thread.

        Raises:
            ModelFailed: the model returned no result.
            Exception: as raised by the model.
        """
        started_at = time.monotonic()
        with telemetry.batch_span(self.model_id, 1, ()), model.charge(call), use_call(call):
            raws = model.handler.run([item], call)  # type: ignore[union-attr]  # a Handler, since it is concurrent
        seconds = time.monotonic() - started_at
        self._check_count(raws, 1)
        telemetry.record_batch(self.model_id, 1, seconds)
        with self._lock:
            self._update_call_seconds(seconds)
        return BatchedResult(raws[0], seconds, seconds)

    async def submit(self, call: QueuedCall) -> BatchedResult:
        """Runs a call in one of the next batches; without a result if it is cancelled.

        Raises:
            DeadlineExceeded: the call waited past its deadline.
            Exception: as raised by the model.
        """
        (outcome,) = await self.submit_all([call])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def submit_all(self, calls: Sequence[QueuedCall]) -> list[BatchedResult | Exception]:
        """Runs calls in the next batches; returns for each its result, or the error that `submit` would raise."""
        if not calls:
            return []
        outcomes = _Outcomes(len(calls))
        for index, call in enumerate(calls):
            call.deliver = partial(outcomes.receive, index)
        self._queue(calls)
        return await outcomes.all

    def drain(self) -> None:
        """Waits for all launched batches and delivers their results; on the thread."""
        while self._launched:
            self._launched[0].wait()
            self._fetch(self._take_first_launched())

    def close(self) -> None:
        """Ends the threads once no batch is left, without waiting for them."""
        self.thread.post(self.drain)
        self.thread.close()
        if self._waiter:
            self._waiter.close()

    def _queue(self, calls: Sequence[QueuedCall]) -> None:
        """Queues calls for the next batches; from any thread."""
        with self._lock:
            self._waiting += calls
        self.thread.post(self._run_next)

    def _run_next(self) -> None:
        """Runs or launches the next batch, if any call still waits, and posts the one after it; on the thread."""
        if self._launched and not self._can_launch:
            return  # it follows when the device has finished
        try:
            batch = self._next_batch()
        except Exception as error:  # noqa: BLE001  # a handler with invalid batch limits
            batch = self._take_all()
            _deliver(batch, [to_sendable_error(error) for _ in batch])
            return
        if not batch:
            return
        if self._waiting:
            self.thread.post(self._run_next)
        links = telemetry.span_contexts_of(batch)
        if batch[0].model.handler.asynchronous:
            batch[0].context.run(self._launch, batch, links)
            return
        self.drain()
        model, call = batch[0].model, BatchCall([queued.call for queued in batch])
        cost = model.batching.cost([queued.cost for queued in batch])
        try:
            items = [queued.item for queued in batch]
            outcomes: Sequence[BatchedResult | Exception] = batch[0].context.run(
                self._run, model, items, cost, call, links
            )
        except BaseException as error:  # noqa: BLE001  # reported to the callers
            self._retry_or_fail(batch, cost, to_sendable_error(error))
        else:
            _deliver(batch, outcomes)

    @property
    def _can_launch(self) -> bool:
        """Whether a further batch may be launched before the device has finished."""
        return len(self._launched) < _MAX_LAUNCHED and len(self._waiting) >= len(self._launched[-1].calls)

    def _launch(self, calls: list[QueuedCall], links: Sequence[SpanContext]) -> None:
        """Queues a batch on the device."""
        model, call = calls[0].model, BatchCall([queued.call for queued in calls])
        cost, items = model.batching.cost([queued.cost for queued in calls]), [queued.item for queued in calls]
        started_at = time.monotonic()
        self.busy_since = self.busy_since or started_at
        metered_from = model.pool.meter.begin() if model.pool else 0.0
        span = telemetry.create_batch_span(self.model_id, len(items), links)
        try:
            with tracing.use_span(span, end=False), cpus().charge(call):
                batch = model.handler.launch(items, call)  # type: ignore[union-attr]  # a Handler, since it is asynchronous
        except BaseException as error:  # noqa: BLE001  # reported to the callers
            _charge_device(model, call, metered_from)
            self.busy_since = self.busy_since if self._launched else None
            self._retry_or_fail(calls, cost, to_sendable_error(error))
            return
        launched = _Launched(calls, call, cost, batch, started_at, metered_from, span)
        self._launched.append(launched)
        self._running += len(calls)
        self._waiter = self._waiter or ThreadPool(f"{self.model_id}-wait")
        self._waiter.post(partial(self._wait, launched))

    def _wait(self, launched: _Launched) -> None:
        """Waits for the device; on a thread of its own, so that further batches can be launched meanwhile."""
        launched.wait()
        self.thread.post(partial(self._complete, launched))

    def _complete(self, launched: _Launched) -> None:
        """Launches the next batch, then delivers the results of one that the device has finished; on the thread."""
        if launched in self._launched:  # else `drain` has delivered it
            finished = self._take_first_launched()
            self._run_next()
            self._fetch(finished)
        if self._waiting and not self._launched:
            self.thread.post(self._run_next)

    def _take_first_launched(self) -> _Launched:
        launched = self._launched.popleft()
        self.busy_since = launched.finished_at if self._launched else None
        return launched

    def _fetch(self, launched: _Launched) -> None:
        """Delivers the results of a batch that the device has finished."""
        model, calls, finished_at = launched.model, launched.calls, launched.finished_at or time.monotonic()
        seconds = finished_at - max(launched.launched_at, self._finished_at)
        self._finished_at = finished_at
        self._running -= len(calls)
        _charge_device(model, launched.call, launched.metered_from)
        try:
            with cpus().charge(launched.call):
                raws = calls[0].context.run(launched.fetch)
            results = self._record(model, raws, len(calls), launched.cost, seconds)
        except BaseException as error:  # noqa: BLE001  # reported to the callers
            self._retry_or_fail(calls, launched.cost, to_sendable_error(error))
        else:
            _deliver(calls, results)

    def _next_batch(self) -> list[QueuedCall]:
        """Removes the next batch from the queue; drops cancelled calls and fails those past their deadline."""
        with self._lock:
            waiting = [queued for queued in self._waiting if not queued.call.cancelled]
            now = time.monotonic()
            late = [queued for queued in waiting if queued.call.deadline <= now]
            waiting = [queued for queued in waiting if queued not in late] if late else waiting
            batch = self._composer.compose(waiting) if waiting else []
            self._waiting = [queued for queued in waiting if queued not in batch]
        if late:
            _deliver(late, [_deadline_exceeded(self.model_id) for _ in late])
        return batch

    def _take_all(self) -> list[QueuedCall]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    def _run(
        self,
        model: LoadedModel,
        items: Sequence[Any],
        cost: float,
        call: ActiveCall | BatchCall,
        links: Sequence[SpanContext] = (),
    ) -> list[BatchedResult]:
        self._running += len(items)
        self._active_model, self.busy_since = model, (started_at := time.monotonic())
        try:
            with telemetry.batch_span(self.model_id, len(items), links), model.charge(call):
                raws = model.handler.run(items, call)  # type: ignore[union-attr]  # a RemoteHandler has no batches
            seconds = time.monotonic() - started_at
        finally:
            self._running -= len(items)
            self._active_model = self.busy_since = None
        return self._record(model, raws, len(items), cost, seconds)

    def _record(
        self, model: LoadedModel, raws: Sequence[Any], count: int, cost: float, seconds: float
    ) -> list[BatchedResult]:
        """Records a batch that succeeded and returns its results.

        Raises:
            ModelFailed: there are fewer or more results than items.
        """
        self._check_count(raws, count)
        model.record_batch(cost, seconds)
        telemetry.record_batch(self.model_id, count, seconds)
        share = seconds / count
        self._update_call_seconds(share)
        return [BatchedResult(raw, seconds, share) for raw in raws]

    def _check_count(self, raws: Sequence[Any], count: int) -> None:
        if len(raws) != count:
            raise ModelFailed(
                f"model {self.model_id} returned {len(raws)} results for {count} inputs",
                remedy="report it to the maintainer of the expert",
            )

    def _update_call_seconds(self, share: float) -> None:
        """Updates the moving average of the time per call."""
        self._call_seconds = self._call_seconds * _DECAY + share * (1 - _DECAY) if self._call_seconds else share

    def _retry_or_fail(self, batch: Sequence[QueuedCall], cost: float, error: Exception) -> None:
        """Queues the calls of a failed batch again, in a smaller batch or alone; a call that ran alone fails."""
        if is_out_of_memory(error) and not any(queued.was_retried for queued in batch):
            self._free_memory()
            batch[0].model.record_out_of_memory(cost)
            for queued in batch:
                queued.was_retried = True
        elif len(batch) > 1:
            for queued in batch:
                queued.runs_alone = True
        else:
            _deliver(batch, [error])
            return
        self._queue(batch)

    def _free_memory(self) -> None:
        try:
            self.free_memory()
        except Exception:
            log.exception("memory not freed", model=self.model_id)


def _charge_device(model: LoadedModel, call: BatchCall, metered_from: float) -> None:
    """Charges the calls of a launched batch for the device, whose seconds are shared by all batches on it."""
    if model.pool:
        call.add_usage(model.pool.name, model.pool.meter.end(metered_from))


def _deliver(batch: Sequence[QueuedCall], outcomes: Sequence[BatchedResult | Exception]) -> None:
    for queued, outcome in zip(batch, outcomes, strict=True):
        queued.deliver(outcome)


def _deadline_exceeded(model_id: str) -> DeadlineExceeded:
    return DeadlineExceeded(f"the call's deadline passed while it waited for {model_id}", remedy="allow more time")
