"""Runs calls on one model: prepare on a CPU thread, run on the device's thread, finish on a CPU thread."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, ParamSpec, TypeVar

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
from experts.host.model_manager import ModelSlot
from experts.host.threads import ThreadPool, to_sendable_error
from services.common.errors import ServiceError

P = ParamSpec("P")
R = TypeVar("R")
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
        return self.stopwatch.time(self._prepare, model)

    def finish(self, model: LoadedModel, raw: Any) -> T:
        """Converts the model's result to the call's output."""
        return self.stopwatch.time(self._finish, model, raw)

    def prepare_to_queue(self, model: LoadedModel, task: str, context: Context) -> QueuedCall:
        """Returns the item, ready for `Batcher.submit`.

        Args:
            model: which runs it.
            task: of the model.
            context: that a batch may run in; no thread may be in it.
        """
        item, cost = self.prepare(model)
        return QueuedCall(model, (task, model.handler.batch_key(item, self.parameters)), item, cost, self.call, context)

    def _prepare(self, model: LoadedModel) -> tuple[Any, float]:
        item = model.handler.prepare(self.read(), self.parameters)
        return item, float(model.handler.cost(item))

    def _finish(self, model: LoadedModel, raw: Any) -> T:
        return self.write(model.handler.finish(raw))


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
        async with model.use(steps.call) as loaded:
            with translate_model_errors(model.id):
                if loaded.handler.concurrent:
                    ran, result = await self._run_unbatched(loaded, model.batcher, steps)
                elif model.batcher.is_idle and not steps.decodes_files:
                    ran, result = await self._run_directly(loaded, model.batcher, steps)
                else:
                    ran, result = await self._run_batched(loaded, model.batcher, steps, model.task)
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
        if loaded.handler.concurrent:
            outcomes = [await _outcome(self._run_unbatched(loaded, model.batcher, items[0]))]
        else:
            prepared = await self._on_cpu(call, _prepare_group, items, loaded, model.task, copy_context())
            ran = await model.batcher.submit_all([item for item in prepared if isinstance(item, QueuedCall)])
            outcomes = await self._on_cpu(call, _finish_group, items, loaded, _merge(prepared, ran))
        call.count_ended(len(items))
        call.report()
        return outcomes

    async def _run_batched(
        self, loaded: LoadedModel, batcher: Batcher, steps: CallSteps[T], task: str
    ) -> tuple[BatchedResult, T]:
        """Runs the call in a batch with others; inputs are read and outputs written while the device runs batches."""
        item = await self._on_cpu(steps.call, steps.prepare_to_queue, loaded, task, copy_context())
        ran = await batcher.submit(item)
        return ran, await self._on_cpu(steps.call, steps.finish, loaded, ran.raw)

    async def _on_cpu(self, call: ActiveCall, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a step of a call on a CPU thread, and charges the call for it."""

        def charged() -> R:
            with cpus().charge(call), use_call(call):
                return step(*args, **kwargs)

        return await self._cpu.run(charged)

    async def _run_directly(
        self, loaded: LoadedModel, batcher: Batcher, steps: CallSteps[T]
    ) -> tuple[BatchedResult, T]:
        """Runs all steps on the device's thread: without other calls, each change of threads only costs 0.1 ms."""

        def run_all() -> tuple[BatchedResult, T | None, bool]:
            with cpus().charge(steps.call), use_call(steps.call):
                item, cost = steps.prepare(loaded)
                ran = batcher.run_alone(loaded, item, cost, steps.call)
                if batcher.has_multiple_calls:  # others arrived meanwhile and need the device
                    return ran, None, False
                return ran, steps.finish(loaded, ran.raw), True

        ran, result, finished = await batcher.thread.run(run_all)
        if not finished:
            result = await self._on_cpu(steps.call, steps.finish, loaded, ran.raw)
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
            return await self._on_cpu(steps.call, run_all)

    async def _run_remote(self, loaded: LoadedModel, batcher: Batcher, steps: CallSteps[T]) -> tuple[BatchedResult, T]:
        """Runs the call by a RemoteHandler on the event loop; calls do not wait for each other."""
        item, _ = await self._on_cpu(steps.call, steps.prepare, loaded)
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
        return BatchedResult(raw, seconds, seconds), await self._on_cpu(steps.call, steps.finish, loaded, raw)


async def _outcome(result: Awaitable[R]) -> R | Exception:
    """Returns a result, or the error with which it fails."""
    try:
        return await result
    except Exception as error:  # noqa: BLE001  # reported as the item's
        return error


def _prepare_group(
    items: Sequence[CallSteps[Any]], loaded: LoadedModel, task: str, context: Context
) -> list[QueuedCall | Exception]:
    """Prepares items of one call on one thread, since each change of threads costs 0.1 ms."""
    return [_try(steps.prepare_to_queue, loaded, task, context) for steps in items]


def _finish_group(
    items: Sequence[CallSteps[T]], loaded: LoadedModel, outcomes: list[BatchedResult | Exception]
) -> list[tuple[BatchedResult, T] | Exception]:
    """Finishes items of one call on one thread; each result of the model is freed then."""
    outcomes.reverse()
    return [_try(_finish_item, steps, loaded, outcomes.pop()) for steps in items]


def _finish_item(
    steps: CallSteps[T], loaded: LoadedModel, outcome: BatchedResult | Exception
) -> tuple[BatchedResult, T]:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome, steps.finish(loaded, outcome.raw)


def _try(step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | Exception:
    try:
        return step(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  # reported to the caller
        return to_sendable_error(error)


def _merge(
    prepared: Sequence[QueuedCall | Exception], ran: Sequence[BatchedResult | Exception]
) -> list[BatchedResult | Exception]:
    """Returns the outcome of every item: its error, or that of its batch."""
    remaining = iter(ran)
    return [item if isinstance(item, Exception) else next(remaining) for item in prepared]


def _record(model: ModelSlot, steps: CallSteps[T], ran: BatchedResult, result: T) -> InferenceResult[T]:
    own = steps.stopwatch.seconds
    model.latency.add(own + ran.seconds)
    return InferenceResult(result, own + ran.share)
