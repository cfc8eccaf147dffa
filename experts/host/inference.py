"""Runs calls on one model: prepare on a CPU thread, run on the device's thread, finish on a CPU thread."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

from experts.host import telemetry
from experts.host.active_calls import ActiveCall, CallItems
from experts.host.batch_composer import QueuedCall
from experts.host.batcher import BatchedResult, Batcher
from experts.host.handler import Inputs, Outputs, Parameters, RemoteHandler
from experts.host.isolation import use_call
from experts.host.latency_model import Stopwatch
from experts.host.loaded_model import LoadedModel
from experts.host.metering import cpus
from experts.host.model_errors import to_service_error, translate_model_errors
from experts.host.model_slot import ModelSlot
from experts.host.threads import ThreadPool, ThreadSafeFuture, to_sendable_error
from services.common.errors import ServiceError

T = TypeVar("T")

GROUP_ITEMS = 32
"""Least number of items without files that are prepared together; at least a batch of the model."""


@dataclass(frozen=True)
class CallSteps(Generic[T]):
    """How to read the input of one call and write its output."""

    read: Callable[[], Inputs]
    parameters: Parameters
    write: Callable[[Outputs], T]
    call: ActiveCall
    decodes_files: bool = False
    """Whether reading the input decodes a file, which may be slow and must not block the device's thread."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    """Measures the time spent reading and writing."""

    def prepare(self, model: LoadedModel) -> tuple[Any, float]:
        """Returns the item and its cost."""
        with cpus().charge(self.call), use_call(self.call):
            return self.prepare_in_group(model)

    def finish(self, model: LoadedModel, raw: Any) -> T:
        """Converts the model's result to the call's output."""
        with cpus().charge(self.call), use_call(self.call):
            return self.finish_in_group(model, raw)

    def prepare_in_group(self, model: LoadedModel) -> tuple[Any, float]:
        """As `prepare`, for one of several items of a call that is already charged."""
        return self.stopwatch.time(self._prepare, model)

    def finish_in_group(self, model: LoadedModel, raw: Any) -> T:
        """As `finish`, for one of several items of a call that is already charged."""
        return self.stopwatch.time(self._finish, model, raw)

    def _prepare(self, model: LoadedModel) -> tuple[Any, float]:
        item = model.handler.prepare(self.read(), self.parameters)
        return item, float(model.handler.cost(item))

    def _finish(self, model: LoadedModel, raw: Any) -> T:
        return self.write(model.handler.finish(raw))


class PipelinedItems(Generic[T]):
    """Items of one call, or its only one, that run in batches with others of the same task and batch key.

    They are prepared together and finished together: each change of threads costs 0.1 ms.
    """

    def __init__(
        self, cpu: ThreadPool, batcher: Batcher, loaded: LoadedModel, task: str, items: Sequence[CallSteps[T]]
    ) -> None:
        self._cpu, self._batcher, self._loaded, self._task, self._items = cpu, batcher, loaded, task, items
        self._call = items[0].call
        self._context, self._finish_context = copy_context(), copy_context()  # the device's thread may be in the first
        self._outcomes: dict[int, BatchedResult | Exception] = {}
        self._end: ThreadSafeFuture[list[tuple[BatchedResult, T] | Exception]] = ThreadSafeFuture()

    async def results(self) -> list[tuple[BatchedResult, T] | Exception]:
        """Runs the items and returns a result or an error for each: as raised by the model, or DeadlineExceeded."""
        self._cpu.post(self._submit)
        return await self._end.future

    def _submit(self) -> None:
        """Prepares and queues the items; outside their context, which the device's thread may enter at once."""
        queued = self._context.run(self._prepare)
        if queued:
            self._batcher.submit(*queued)
        else:
            self._finish_context.run(self._finish)

    def _prepare(self) -> list[QueuedCall]:
        """Returns the items that could be prepared; none if the caller has left."""
        queued: list[QueuedCall] = []
        with cpus().charge(self._call), use_call(self._call):
            for index in range(len(self._items)):
                if self._call.cancelled:
                    return []
                try:
                    queued.append(self._prepare_item(index))
                except BaseException as error:  # noqa: BLE001  # reported to the caller
                    self._outcomes[index] = to_sendable_error(error)
        return queued

    def _prepare_item(self, index: int) -> QueuedCall:
        steps, deliver = self._items[index], partial(self._receive_outcome, index)
        item, cost = steps.prepare_in_group(self._loaded)
        batch_key = (self._task, self._loaded.handler.batch_key(item, steps.parameters))
        return QueuedCall(self._loaded, batch_key, item, cost, self._call, self._context, deliver)

    def _receive_outcome(self, index: int, outcome: BatchedResult | Exception) -> None:
        self._outcomes[index] = outcome
        if len(self._outcomes) == len(self._items):
            self._cpu.post(lambda: self._finish_context.run(self._finish))

    def _finish(self) -> None:
        if self._call.cancelled:
            return
        with cpus().charge(self._call), use_call(self._call):
            self._end.set_result([self._finish_item(index) for index in range(len(self._items))])

    def _finish_item(self, index: int) -> tuple[BatchedResult, T] | Exception:
        outcome = self._outcomes.pop(index)  # frees the model's result
        if isinstance(outcome, Exception):
            return outcome
        try:
            return outcome, self._items[index].finish_in_group(self._loaded, outcome.raw)
        except BaseException as error:  # noqa: BLE001  # reported to the caller
            return to_sendable_error(error)


@dataclass(frozen=True)
class InferenceResult(Generic[T]):
    """Result of a call and the time it took."""

    result: T
    busy_seconds: float
    """The call's own steps and its share of the batch, without waiting."""


class Inference:
    """Runs calls.

    Args:
        cpu: threads for reading inputs and writing outputs, shared by all models.
    """

    def __init__(self, cpu: ThreadPool) -> None:
        self._cpu = cpu

    async def run(self, model: ModelSlot, steps: CallSteps[T]) -> InferenceResult[T]:
        """Runs one call, after loading the model if necessary.

        Raises:
            InvalidRequest: the model cannot process the input.
            FailedPrecondition: LOAD_FAILED.
            OutOfMemory: the input or the result does not fit.
            ModelFailed: the model failed; the log has the cause.
        """
        batcher = model.batcher
        async with model.use(steps.call) as loaded:
            with translate_model_errors(model.id):
                if loaded.handler.concurrent:
                    ran, result = await self._run_unbatched(loaded, batcher, steps)
                elif batcher.is_idle and not steps.decodes_files:
                    ran, result = await self._run_directly(loaded, batcher, steps)
                else:
                    outcome = (await self._run_batched(model, loaded, [steps]))[0]
                    if isinstance(outcome, Exception):
                        raise outcome
                    ran, result = outcome
        return _record(model, steps, ran, result)

    async def run_items(
        self, model: ModelSlot, call: CallItems, items: Sequence[CallSteps[T]], *, with_files: bool
    ) -> list[InferenceResult[T] | ServiceError]:
        """Runs the items of one call, after loading the model if necessary; a failed item affects no other.

        Args:
            model: the model.
            call: the call of all items.
            items: at least one, all with the same parameters.
            with_files: whether any input or output is a file. Reading and writing these is slow, so that each item
                does it in a job of its own; other items do it in groups.

        Returns:
            The result of each item, or the error that `run` would raise for it.

        Raises:
            FailedPrecondition: LOAD_FAILED.
        """
        async with model.use(call.whole) as loaded, asyncio.TaskGroup() as tasks:
            call.report()
            alone = with_files or loaded.handler.concurrent
            size = 1 if alone else max(GROUP_ITEMS, int(loaded.batching.items))
            groups = [
                tasks.create_task(self._run_group(model, loaded, call, items[start : start + size]))
                for start in range(0, len(items), size)
            ]
        outcomes = chain.from_iterable(group.result() for group in groups)
        return [
            to_service_error(outcome, model.id) if isinstance(outcome, Exception) else _record(model, steps, *outcome)
            for steps, outcome in zip(items, outcomes, strict=True)
        ]

    async def _run_group(
        self, model: ModelSlot, loaded: LoadedModel, call: CallItems, items: Sequence[CallSteps[T]]
    ) -> list[tuple[BatchedResult, T] | Exception]:
        """Runs some items of a call; a single one if the handler is concurrent."""
        outcomes: list[tuple[BatchedResult, T] | Exception]
        if loaded.handler.concurrent:
            try:
                outcomes = [await self._run_unbatched(loaded, model.batcher, items[0])]
            except Exception as error:  # noqa: BLE001  # reported as the item's
                outcomes = [error]
        else:
            outcomes = await self._run_batched(model, loaded, items)
        call.count_ended(len(items))
        call.report()
        return outcomes

    async def _run_directly(
        self, loaded: LoadedModel, batcher: Batcher, steps: CallSteps[T]
    ) -> tuple[BatchedResult, T]:
        """Runs all steps on the device's thread: without other calls, each change of threads only costs 0.1 ms."""

        def run_all() -> tuple[BatchedResult, T | None, bool]:
            with cpus().charge(steps.call):
                item, cost = steps.prepare(loaded)
                ran = batcher.run_alone(loaded, item, cost, steps.call)
                if batcher.has_multiple_calls:  # others arrived meanwhile and need the device
                    return ran, None, False
                return ran, steps.finish(loaded, ran.raw), True

        ran, result, finished = await batcher.thread.run(run_all)
        if not finished:
            result = await self._cpu.run(steps.finish, loaded, ran.raw)
        return ran, result  # type: ignore[return-value]  # it is finished now

    async def _run_unbatched(
        self, loaded: LoadedModel, batcher: Batcher, steps: CallSteps[T]
    ) -> tuple[BatchedResult, T]:
        """Runs a call of a concurrent handler, at the same time as others."""
        if isinstance(loaded.handler, RemoteHandler):
            return await self._run_remote(loaded, batcher, steps)
        return await self._run_concurrently(loaded, batcher, steps)

    async def _run_concurrently(
        self, loaded: LoadedModel, batcher: Batcher, steps: CallSteps[T]
    ) -> tuple[BatchedResult, T]:
        """Runs the call on one CPU thread, which waits for worker processes; calls do not wait for each other."""

        def run_all() -> tuple[BatchedResult, T]:
            if steps.call.cancelled:
                raise asyncio.CancelledError
            item, _ = steps.prepare(loaded)
            ran = batcher.run_concurrently(loaded, item, steps.call)
            return ran, steps.finish(loaded, ran.raw)

        with batcher.count_running():
            return await self._cpu.run(run_all)

    async def _run_remote(self, loaded: LoadedModel, batcher: Batcher, steps: CallSteps[T]) -> tuple[BatchedResult, T]:
        """Runs the call by a RemoteHandler on the event loop; calls do not wait for each other."""
        item, _ = await self._cpu.run(steps.prepare, loaded)
        with batcher.count_running():
            started_at = time.monotonic()
            try:
                with telemetry.batch_span(batcher.model_id, 1, ()):
                    raw = await loaded.handler.infer(item, steps.call)  # type: ignore[union-attr]  # a RemoteHandler
            finally:
                seconds = time.monotonic() - started_at
                if loaded.pool:
                    steps.call.add_usage(loaded.pool.name, seconds)
            telemetry.record_batch(batcher.model_id, 1, seconds)
        return BatchedResult(raw, seconds, seconds), await self._cpu.run(steps.finish, loaded, raw)

    async def _run_batched(
        self, model: ModelSlot, loaded: LoadedModel, items: Sequence[CallSteps[T]]
    ) -> list[tuple[BatchedResult, T] | Exception]:
        """Runs items in batches; inputs are read and outputs written while the device runs others."""
        return await PipelinedItems(self._cpu, model.batcher, loaded, model.task, items).results()


def _record(model: ModelSlot, steps: CallSteps[T], ran: BatchedResult, result: T) -> InferenceResult[T]:
    own = steps.stopwatch.seconds
    model.latency.add(own + ran.seconds)
    return InferenceResult(result, own + ran.share)
