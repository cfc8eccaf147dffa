"""Models in worker processes of their own, as used by the expert.

A crash in native code, the system's out-of-memory killer or a hanging call ends one worker process instead of the
server. The affected calls fail, and the worker is started again.
"""

import pickle
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from experts.host import load_context
from experts.host.devices import CPU
from experts.host.handler import Call, Handler, Inputs, Loader, Outputs, Parameters, RemoteHandler
from experts.host.isolation import Configuration
from experts.host.worker_process import Worker, WorkerDied
from experts.host.worker_protocol import LoadedInfo, Start
from services.common.errors import FailedPrecondition, ModelFailed, OutOfMemory, ServiceError, Unavailable

RESTART_DELAY_SECONDS = 30.0
"""Delay before a worker that failed to start is started again."""


@dataclass(frozen=True)
class WorkerSettings:
    """How worker processes are started."""

    threads: int
    load_seconds: float
    """Timeout of a model's load."""
    log: tuple[str, str]
    """Level and format."""
    isolation: Configuration
    """Configuration of the decoding processes of each worker."""

    def loader(self, task: str, loader: Loader) -> Loader:
        """Returns a loader that loads models into worker processes, except those that need no process."""
        return partial(self._load, task, loader)

    def _load(self, task: str, loader: Loader, model_id: str, device: str) -> Handler | RemoteHandler:
        try:
            pickled = pickle.dumps(loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            return _require_no_process(task, loader(model_id, device), error)
        current = load_context.current()
        arguments = (
            task,
            model_id,
            current.revision,
            device,
            current.dtype,
            self.threads,
            self.load_seconds,
            self.log,
            self.isolation,
        )
        handler = WorkerHandler(Start(tuple(sys.path), pickled, *arguments))
        if not handler.concurrent:
            return handler
        handler.close()
        return loader(model_id, device)


def _require_no_process(task: str, model: Handler | RemoteHandler, error: Exception) -> Handler | RemoteHandler:
    """Returns the model if it needs no worker process.

    Raises:
        FailedPrecondition: LOAD_FAILED, it needs one, but its loader cannot be pickled.
    """
    if model.concurrent:
        return model
    raise FailedPrecondition(
        f"the loader of {task} cannot run in a worker process: {error}",
        reason="LOAD_FAILED",
        remedy="make it a function at the top level of a module, or unset EXPERT_WORKERS",
    ) from None


class WorkerItem:
    """An item in a worker process, with the inputs to prepare it again in another one if that process dies."""

    def __init__(self, number: int, inputs: Inputs, parameters: Parameters) -> None:
        self.number = number
        self.arguments = dict(inputs), dict(parameters)
        self.cost = 1.0
        self.worker: Worker | None = None
        """The process that has the item."""
        self.is_suspect = False
        """Whether it was in a batch during which a worker died; it or a batch peer may cause that again."""
        self.outputs: Outputs | None = None


class WorkerHandler(Handler):
    """Handler of a model in a worker process, which is restarted when it dies."""

    has_process = True

    def __init__(self, start: Start) -> None:
        self._start = start
        self._numbers = count(1)
        self._discarded: deque[int] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._batch_started: float | None = None
        self._start_failure: tuple[float, ServiceError] | None = None
        with self._lock:
            self._worker, info = self._start_worker(load_context.current().progress)
        self.batching, self.revision, self.concurrent = info.batching, info.revision, info.concurrent
        self.memory_bytes = info.resident_bytes if start.device == CPU else 0

    def prepare(self, inputs: Inputs, parameters: Parameters) -> WorkerItem:
        item = WorkerItem(next(self._numbers), inputs, parameters)
        weakref.finalize(item, self._discarded.append, item.number)  # sent with the next request
        with suppress(WorkerDied):  # then `run` prepares it, so that other inputs do not wait for a worker to start
            self._prepare_in(item, self._worker)
        return item

    def cost(self, item: WorkerItem) -> float:
        return item.cost

    def run(self, items: Sequence[WorkerItem], call: Call) -> Sequence[WorkerItem]:
        worker = self._current_worker()
        try:
            for item in items:
                if item.worker is not worker:
                    self._prepare_in(item, worker)
            self._batch_started = time.monotonic()
            results = worker.run([item.number for item in items], call)
            for item in items:
                if item.is_suspect:  # finished now, because the next item may end the worker
                    item.outputs = worker.request("finish", [item.number])
        except WorkerDied as died:
            for item in items:
                item.is_suspect = True
            raise died.error from None
        finally:
            self._batch_started = None
        return list(items) if results == len(items) else [items[0]] * results

    def finish(self, raw: WorkerItem) -> Outputs:
        if raw.outputs is not None:
            return raw.outputs
        assert raw.worker  # noqa: S101  # it ran there
        try:
            outputs: Outputs = raw.worker.request("finish", [raw.number])
        except WorkerDied:
            raise Unavailable(
                f"the process of {self._start.model_id} died before the result was written", remedy="try again"
            ) from None
        return outputs

    def kill(self, seconds: float) -> None:
        """Ends the process if a batch has run in it for so long; its start and load do not count."""
        if self._batch_started is None or time.monotonic() - self._batch_started < seconds:
            return
        remedy = "try another input or another model, or let the operator raise EXPERT_DEVICE_SECONDS"
        message = f"{self._start.model_id} did not finish within {seconds:g} s"
        self._worker.end(ModelFailed(message, remedy=remedy))

    def close(self) -> None:
        self._closed = True
        self._worker.end()

    def _prepare_in(self, item: WorkerItem, worker: Worker) -> None:
        discarded = [self._discarded.popleft() for _ in range(len(self._discarded))]
        item.cost = worker.request("prepare", [item.number], item.arguments, discarded)
        item.worker = worker

    def _current_worker(self) -> Worker:
        """Returns the worker, restarted if it has died.

        Raises:
            FailedPrecondition: LOAD_FAILED, it could not be restarted.
        """
        with self._lock:
            if self._worker.ended.is_set():
                self._worker, _ = self._start_worker(lambda _fraction, _message: None)
            return self._worker

    def _restart(self) -> None:
        if not self._closed:
            with suppress(ServiceError):  # raised again by the next call
                self._current_worker()

    def _start_worker(self, progress: Callable[[float, str], None]) -> tuple[Worker, LoadedInfo]:
        if self._start_failure and time.monotonic() < self._start_failure[0]:
            raise self._start_failure[1]
        worker = Worker(self._start, self._restart)
        try:
            return worker, worker.load(progress)
        except WorkerDied as died:
            cause: ServiceError = died.error
        except ServiceError as error:
            worker.end()
            cause = error
        failed = FailedPrecondition(cause.message, remedy=cause.remedy, reason="LOAD_FAILED")
        self._start_failure = time.monotonic() + RESTART_DELAY_SECONDS, failed
        raise cause if isinstance(cause, OutOfMemory) else failed
