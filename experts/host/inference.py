"""Runs one call on one model: prepare on a CPU thread, run on the device's thread, finish on a CPU thread."""

import asyncio
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from experts.host import telemetry
from experts.host.active_calls import ActiveCall
from experts.host.batch_composer import QueuedCall
from experts.host.batcher import BatchedResult, Batcher
from experts.host.handler import Inputs, Outputs, Parameters, RemoteHandler
from experts.host.isolation import use_call
from experts.host.latency_model import Stopwatch
from experts.host.loaded_model import LoadedModel
from experts.host.metering import cpus
from experts.host.model_errors import translate_model_errors
from experts.host.model_slot import ModelSlot
from experts.host.threads import ThreadPool, ThreadSafeFuture

T = TypeVar("T")


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
            return self.stopwatch.time(self._prepare, model)

    def finish(self, model: LoadedModel, raw: Any) -> T:
        """Converts the model's result to the call's output."""
        with cpus().charge(self.call), use_call(self.call):
            return self.stopwatch.time(self._finish, model, raw)

    def _prepare(self, model: LoadedModel) -> tuple[Any, float]:
        item = model.handler.prepare(self.read(), self.parameters)
        return item, float(model.handler.cost(item))

    def _finish(self, model: LoadedModel, raw: Any) -> T:
        return self.write(model.handler.finish(raw))


class PipelinedCall(Generic[T]):
    """One call that runs in a batch with others of the same task and batch key."""

    def __init__(self, cpu: ThreadPool, batcher: Batcher, loaded: LoadedModel, task: str, steps: CallSteps[T]) -> None:
        self._cpu, self._batcher, self._loaded, self._task, self._steps = cpu, batcher, loaded, task, steps
        self._context = copy_context()
        self._end: ThreadSafeFuture[tuple[BatchedResult, T]] = ThreadSafeFuture()

    async def result(self) -> tuple[BatchedResult, T]:
        """Runs the call and returns its result.

        Raises:
            DeadlineExceeded: its deadline passed while it waited.
            Exception: as raised by the model.
        """
        self._cpu.post(self._prepare)
        return await self._end.future

    def _prepare(self) -> None:
        if self._steps.call.cancelled:
            return
        try:
            item, cost = self._context.run(self._steps.prepare, self._loaded)
            batch_key = (self._task, self._loaded.handler.batch_key(item, self._steps.parameters))
        except BaseException as error:  # noqa: BLE001  # reported to the caller
            self._end.set_exception(error)
        else:
            call, context = self._steps.call, self._context
            self._batcher.submit(QueuedCall(self._loaded, batch_key, item, cost, call, context, self._receive_outcome))

    def _receive_outcome(self, outcome: BatchedResult | Exception) -> None:
        if isinstance(outcome, Exception):
            self._end.set_exception(outcome)
        else:
            self._cpu.post(lambda: self._finish(outcome))

    def _finish(self, ran: BatchedResult) -> None:
        if self._steps.call.cancelled:
            return
        try:
            self._end.set_result((ran, self._context.run(self._steps.finish, self._loaded, ran.raw)))
        except BaseException as error:  # noqa: BLE001  # reported to the caller
            self._end.set_exception(error)


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
                if isinstance(loaded.handler, RemoteHandler):
                    ran, result = await self._run_remote(loaded, batcher, steps)
                elif loaded.handler.concurrent:
                    ran, result = await self._run_concurrently(loaded, batcher, steps)
                elif batcher.is_idle and not steps.decodes_files:
                    ran, result = await self._run_directly(loaded, batcher, steps)
                else:
                    ran, result = await self._run_batched(model.task, loaded, batcher, steps)
        own = steps.stopwatch.seconds
        model.latency.add(own + ran.seconds)
        return InferenceResult(result, own + ran.share)

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
        self, task: str, loaded: LoadedModel, batcher: Batcher, steps: CallSteps[T]
    ) -> tuple[BatchedResult, T]:
        """Runs the call in a batch; input is read and output written while the device runs other calls."""
        return await PipelinedCall(self._cpu, batcher, loaded, task, steps).result()
