"""Moves one call through the threads: prepared on a CPU thread, run on the device's thread, finished on a CPU thread.

Each thread passes the call directly to the next. The event loop only receives the result.
"""

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from experts.host.active_calls import ActiveCall
from experts.host.batch_composer import QueuedCall
from experts.host.batcher import BatchedResult, Batcher
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.isolation import use_call
from experts.host.loaded_model import LoadedModel
from experts.host.metering import cpus
from experts.host.threads import ThreadPool, ThreadSafeFuture
from experts.host.timing import Stopwatch

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
    """One call that runs in a batch with others of the same batch key."""

    def __init__(
        self, cpu: ThreadPool, batcher: Batcher, loaded: LoadedModel, batch_key: str, steps: CallSteps[T]
    ) -> None:
        self._cpu, self._batcher, self._loaded, self._steps = cpu, batcher, loaded, steps
        self._batch_key = batch_key
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
        except BaseException as error:  # noqa: BLE001  # reported to the caller
            self._end.set_exception(error)
        else:
            call, context = self._steps.call, self._context
            self._batcher.submit(
                QueuedCall(self._loaded, self._batch_key, item, cost, call, context, self._receive_outcome)
            )

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
