"""One model worker process, as controlled by the expert."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import structlog

from experts.host import metering
from experts.host.handler import Call
from experts.host.worker_protocol import LOAD, Cancel, LoadedInfo, Progress, Reply, Request, Start
from services.common import call_context
from services.common.errors import FailedPrecondition, ModelFailed, OutOfMemory, ServiceError

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.05
"""Interval at which a running batch is checked for cancellation."""

_ROOT = Path(__file__).parents[2]

ProgressCallback = Callable[[float, str], None]


class WorkerDied(Exception):
    """The worker process ended."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__(error.message)
        self.error = error
        """The error for a call that may have caused it."""


class Worker:
    """One worker process, from start to end."""

    def __init__(self, start: Start, on_death: Callable[[], None]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                (sys.executable, "-P", "-m", "experts.host.worker", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # the expert handles a terminal's Ctrl-C for it
            )
        metering.watch(self._process.pid)
        self._start, self._on_death = start, on_death
        self._connection = Connection(ours.detach())
        self._send_lock, self._numbers = threading.Lock(), count(LOAD)
        self._pending: dict[int, tuple[Future[Any], ProgressCallback | None]] = {}
        self._end_cause: ServiceError | None = None
        self._closed = False
        self.loaded = False
        """Whether its model has loaded; only then is its death reported to on_death."""
        self.ended = threading.Event()
        """Set once the process has ended."""
        threading.Thread(target=self._listen, name=f"worker-{start.model_id}", daemon=True).start()

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
            raise _load_timed_out(self._start.model_id, self._start.load_seconds) from None
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
        self._end_cause = self._end_cause or _cause(self._start.model_id, status)
        self.ended.set()
        self._fail_pending()
        self._connection.close()
        if not self._closed and self.loaded:
            log.warning("worker died", model=self._start.model_id, error=self._end_cause.message)
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
