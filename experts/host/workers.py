"""Models in worker processes of their own, as used by the expert, and the messages to the processes (worker_main.py).

A crash in native code, the system's out-of-memory killer or a hanging call ends one worker process instead of the
server. The affected calls fail, and the worker is started again.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import structlog

from experts.host import load_context, metering
from experts.host.devices import CPU
from experts.host.handler import Batching, Call, Handler, Inputs, Loader, Outputs, Parameters, RemoteHandler
from experts.host.isolation import Configuration
from experts.host.load_context import LoadContext, ignore_progress
from services.common import call_context
from services.common.errors import FailedPrecondition, ModelFailed, OutOfMemory, ServiceError, Unavailable

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.05
"""Interval at which a running batch is checked for cancellation."""

_ROOT = Path(__file__).parents[2]

ProgressCallback = Callable[[float, str], None]

LOAD = 0
"""Request number of the load, which the Start message requests."""


@dataclass(frozen=True)
class Start:
    """First message to a worker: configures it and requests the load of its model."""

    path: Sequence[str]
    """Module search path."""
    loader: bytes
    """The pickled loader; must be unpickled after the path is set."""
    context: LoadContext
    """Context of the load; progress is reported by messages."""
    threads: int
    load_seconds: float
    """Timeout of the load, after which the worker is killed."""
    log: tuple[str, str]
    """Level and format."""
    isolation: Configuration
    """Configuration of the worker's own decoding processes."""


@dataclass(frozen=True)
class LoadedInfo:
    """Properties of a loaded model."""

    batching: Batching
    revision: str
    resident_bytes: int
    concurrent: bool
    """Whether its work runs in other processes or services, so that a worker process is of no use."""


@dataclass(frozen=True)
class Request:
    """A step to run for one call or for a batch."""

    number: int
    step: str
    """"prepare", "run" or "finish"."""
    items: tuple[int, ...]
    caller: bytes
    arguments: Any = None
    discarded: tuple[int, ...] = ()
    """Items that are no longer needed."""


@dataclass(frozen=True)
class Cancel:
    """All callers of a batch have left."""

    number: int


@dataclass(frozen=True)
class Reply:
    """Result or error of a request."""

    number: int
    result: Any = None
    error: Exception | None = None


@dataclass(frozen=True)
class Progress:
    """Progress of a load or a batch."""

    number: int
    fraction: float
    message: str


class WorkerDied(Exception):
    """The worker process ended."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__(error.message)
        self.error = error
        """The error for a call that may have caused it."""


class WorkerProcess:
    """One worker process, from start to end."""

    def __init__(self, start: Start, on_death: Callable[[], None]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                (sys.executable, "-P", "-m", "experts.host.worker_main", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # the expert handles a terminal's Ctrl-C for it
            )
        metering.watch(self._process.pid)
        self._start, self._on_death = start, on_death
        self._model_id = start.context.model_id
        self._connection = Connection(ours.detach())
        self._send_lock, self._numbers = threading.Lock(), count(LOAD)
        self._pending: dict[int, tuple[Future[Any], ProgressCallback | None]] = {}
        self._end_cause: ServiceError | None = None
        self._closed = False
        self.loaded = False
        """Whether its model has loaded; only then is its death reported to on_death."""
        self.ended = threading.Event()
        """Set once the process has ended."""
        threading.Thread(target=self._listen, name=f"worker-{self._model_id}", daemon=True).start()

    def load(self, progress: ProgressCallback) -> LoadedInfo:
        """Loads the model and returns its properties.

        Raises:
            ServiceError: the load failed or timed out.
            WorkerDied: the process died during the load.
        """
        future, _ = self._send_request(self._start, progress)
        try:
            info: LoadedInfo = future.result(self._start.load_seconds)
        except TimeoutError:
            raise _load_timed_out(self._model_id, self._start.load_seconds) from None
        self.loaded = True
        return info

    def request(self, step: str, items: Sequence[int], arguments: Any = None, discarded: Sequence[int] = ()) -> Any:
        """Runs the step "prepare" or "finish" and returns its result.

        Raises:
            ServiceError: as raised by the model.
            WorkerDied: the process died meanwhile.
        """
        future, _ = self._send_request(self._request(step, items, arguments, discarded))
        return future.result()

    def run(self, items: Sequence[int], call: Call) -> int:
        """Runs a batch and returns the number of results.

        Raises:
            ServiceError: as raised by the model.
            WorkerDied: the process died during the batch.
        """
        future, number = self._send_request(self._request("run", items), call.progress)
        cancel_sent = False
        while True:
            try:
                result: int = future.result(POLL_SECONDS)
            except TimeoutError:
                if call.cancelled and not cancel_sent:
                    self._send(Cancel(number))
                    cancel_sent = True
            else:
                return result

    def end(self, cause: ServiceError | None = None) -> None:
        """Kills the process; with a cause, its calls fail with it and on_death is called."""
        self._end_cause, self._closed = cause, self._closed or cause is None
        self._process.kill()

    def _request(
        self, step: str, items: Sequence[int], arguments: Any = None, discarded: Sequence[int] = ()
    ) -> Request:
        caller = call_context.current().SerializeToString()
        return Request(LOAD, step, tuple(items), caller, arguments, tuple(discarded))

    def _send_request(
        self, message: Start | Request, progress: ProgressCallback | None = None
    ) -> tuple["Future[Any]", int]:
        future: Future[Any] = Future()
        with self._send_lock:
            number = next(self._numbers)
            self._pending[number] = future, progress
            if isinstance(message, Request):
                message = replace(message, number=number)
        self._send(message)
        if self.ended.is_set():
            self._fail_pending()
        return future, number

    def _send(self, message: Any) -> None:
        with self._send_lock, suppress(OSError):  # the process has ended, which _listen reports
            self._connection.send(message)

    def _listen(self) -> None:
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                self._handle(self._connection.recv())
        self._process.kill()
        status = self._process.wait()
        metering.forget(self._process.pid)
        self._end_cause = self._end_cause or _cause(self._model_id, status)
        self.ended.set()
        self._fail_pending()
        self._connection.close()
        if not self._closed and self.loaded:
            log.warning("worker died", model=self._model_id, error=self._end_cause.message)
            self._on_death()

    def _handle(self, message: Reply | Progress) -> None:
        if isinstance(message, Progress):
            _, progress = self._pending.get(message.number, (None, None))
            if progress:
                progress(message.fraction, message.message)
            return
        future, _ = self._pending.pop(message.number, (None, None))
        if future and message.error:
            future.set_exception(message.error)
        elif future:
            future.set_result(message.result)

    def _fail_pending(self) -> None:
        assert self._end_cause  # noqa: S101  # set before `ended` is
        while self._pending:
            with suppress(KeyError):  # another thread was faster
                _, (future, _) = self._pending.popitem()
                future.set_exception(WorkerDied(self._end_cause))


def _load_timed_out(model_id: str, seconds: float) -> FailedPrecondition:
    return FailedPrecondition(
        f"{model_id} did not load within {seconds:g} s",
        reason="LOAD_FAILED",
        remedy="see the log of the expert, or let the operator raise EXPERT_LOAD_SECONDS",
    )


def _cause(model_id: str, status: int) -> ServiceError:
    if status == -signal.SIGKILL:
        return OutOfMemory(
            f"the process of {model_id} was killed, most likely because memory ran out",
            remedy="send a smaller input, or give the expert more memory",
        )
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return ModelFailed(
        f"the process of {model_id} died on this input: {how}", remedy="try another input or another model"
    )


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
        context = replace(load_context.current(), progress=ignore_progress)
        start = Start(tuple(sys.path), pickled, context, self.threads, self.load_seconds, self.log, self.isolation)
        handler = WorkerHandler(start)
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
        self.batch_key: Hashable = number
        """The handler's key; until the item is prepared, a key that no other item has."""
        self.worker: WorkerProcess | None = None
        """The process that has the item."""
        self.is_suspect = False
        """Whether it was in a batch during which a worker died; it or a batch peer may cause that again."""
        self.outputs: Outputs | None = None


class WorkerHandler(Handler):
    """Handler of a model in a worker process, which is restarted when it dies."""

    has_process = True

    def __init__(self, start: Start) -> None:
        self._start, self._model_id = start, start.context.model_id
        self._numbers = count(1)
        self._discarded: deque[int] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._batch_started: float | None = None
        self._start_failure: tuple[float, ServiceError] | None = None
        with self._lock:
            self._worker, info = self._start_worker(load_context.current().progress)
        self.batching, self.revision, self.concurrent = info.batching, info.revision, info.concurrent
        self.memory_bytes = info.resident_bytes if start.context.device == CPU else 0

    def prepare(self, inputs: Inputs, parameters: Parameters) -> WorkerItem:
        item = WorkerItem(next(self._numbers), inputs, parameters)
        weakref.finalize(item, self._discarded.append, item.number)  # sent with the next request
        with suppress(WorkerDied):  # then `run` prepares it, so that other inputs do not wait for a worker to start
            self._prepare_in(item, self._worker)
        return item

    def cost(self, item: WorkerItem) -> float:
        return item.cost

    def batch_key(self, item: WorkerItem, parameters: Parameters) -> Hashable:  # noqa: ARG002  # as the worker returned it
        return item.batch_key

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
                f"the process of {self._model_id} died before the result was written", remedy="try again"
            ) from None
        return outputs

    def kill(self, seconds: float) -> None:
        """Ends the process if a batch has run in it for so long; its start and load do not count."""
        if self._batch_started is None or time.monotonic() - self._batch_started < seconds:
            return
        remedy = "try another input or another model, or let the operator raise EXPERT_DEVICE_SECONDS"
        message = f"{self._model_id} did not finish within {seconds:g} s"
        self._worker.end(ModelFailed(message, remedy=remedy))

    def close(self) -> None:
        self._closed = True
        self._worker.end()

    def _prepare_in(self, item: WorkerItem, worker: WorkerProcess) -> None:
        discarded = [self._discarded.popleft() for _ in range(len(self._discarded))]
        item.cost, item.batch_key = worker.request("prepare", [item.number], item.arguments, discarded)
        item.worker = worker

    def _current_worker(self) -> WorkerProcess:
        """Returns the worker, restarted if it has died.

        Raises:
            FailedPrecondition: LOAD_FAILED, it could not be restarted.
        """
        with self._lock:
            if self._worker.ended.is_set():
                self._worker, _ = self._start_worker(ignore_progress)
            return self._worker

    def _restart(self) -> None:
        if not self._closed:
            with suppress(ServiceError):  # raised again by the next call
                self._current_worker()

    def _start_worker(self, progress: ProgressCallback) -> tuple[WorkerProcess, LoadedInfo]:
        if self._start_failure and time.monotonic() < self._start_failure[0]:
            raise self._start_failure[1]
        worker = WorkerProcess(self._start, self._restart)
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
