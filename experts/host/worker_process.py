"""One worker process, from its start to its end, seen from the expert."""

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
from experts.host.worker_protocol import LOAD, Cancel, Progress, Reply, Request, Start, Told
from services.common import call_context
from services.common.errors import FailedPrecondition, ModelFailed, OutOfMemory, ServiceError

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.05
"""How often a batch's callers are looked at, whether any is left."""

_ROOT = Path(__file__).parents[2]

Tell = Callable[[float, str], None]


class Gone(Exception):
    """The worker died."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__(error.message)
        self.error = error
        """What a call is told that may have been the cause."""


class Worker:
    """One process, from its start to its end."""

    def __init__(self, start: Start, on_death: Callable[[], None]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                (sys.executable, "-P", "-m", "experts.host.worker", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # a terminal's Ctrl-C is for us to pass on
            )
        metering.watch(self._process.pid)
        self._start, self._on_death = start, on_death
        self._connection = Connection(ours.detach())
        self._sending, self._numbers = threading.Lock(), count(LOAD)
        self._waiting: dict[int, tuple[Future[Any], Tell | None]] = {}
        self._why: ServiceError | None = None
        self._closed = False
        self.loaded = False
        """Only then is its death news."""
        self.gone = threading.Event()
        """Set once it has ended."""
        threading.Thread(target=self._listen, name=f"worker-{start.model_id}", daemon=True).start()

    def load(self, progress: Tell) -> Told:
        """Loads the model; what it says of itself.

        Raises:
            ServiceError: it cannot be, or not in time.
            Gone: the process died of it.
        """
        future, _ = self._asked(self._start, progress)
        try:
            told: Told = future.result(self._start.load_seconds)
        except TimeoutError:
            raise _late(self._start.model_id, self._start.load_seconds) from None
        self.loaded = True
        return told

    def ask(self, step: str, items: Sequence[int], given: Any = None, forget: Sequence[int] = ()) -> Any:
        """What comes of a step.

        Raises:
            ServiceError: as the model raised it.
            Gone: the process died meanwhile.
        """
        future, _ = self._asked(self._request(step, items, given, forget))
        return future.result()

    def run(self, items: Sequence[int], call: Call) -> int:
        """Runs a batch; how many results there are.

        Raises:
            ServiceError: as the model raised it.
            Gone: the process died of it.
        """
        future, number = self._asked(self._request("run", items), call.progress)
        told = False
        while True:
            try:
                result: int = future.result(LOOK_SECONDS)
            except TimeoutError:
                if call.cancelled and not told:
                    self._send(Cancel(number))
                    told = True
            else:
                return result

    def end(self, why: ServiceError | None = None) -> None:
        """Kills the process; without a reason nobody is to miss it."""
        self._why, self._closed = why, self._closed or why is None
        self._process.kill()

    def _request(self, step: str, items: Sequence[int], given: Any = None, forget: Sequence[int] = ()) -> Request:
        return Request(LOAD, step, tuple(items), call_context.current().SerializeToString(), given, tuple(forget))

    def _asked(self, message: Start | Request, progress: Tell | None = None) -> tuple["Future[Any]", int]:
        future: Future[Any] = Future()
        with self._sending:
            number = next(self._numbers)
            self._waiting[number] = future, progress
            if isinstance(message, Request):
                message = replace(message, number=number)
        self._send(message)
        if self.gone.is_set():
            self._give_up()
        return future, number

    def _send(self, message: Any) -> None:
        with self._sending, suppress(OSError):  # it has died, of which the listener tells
            self._connection.send(message)

    def _listen(self) -> None:
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                self._hear(self._connection.recv())
        self._process.kill()
        status = self._process.wait()
        metering.forget(self._process.pid)
        self._why = self._why or _cause(self._start.model_id, status)
        self.gone.set()
        self._give_up()
        self._connection.close()
        if not self._closed and self.loaded:
            log.warning("worker died", model=self._start.model_id, error=self._why.message)
            self._on_death()

    def _hear(self, message: Reply | Progress) -> None:
        if isinstance(message, Progress):
            _, progress = self._waiting.get(message.number, (None, None))
            if progress:
                progress(message.fraction, message.message)
            return
        future, _ = self._waiting.pop(message.number, (None, None))
        if future and message.error:
            future.set_exception(message.error)
        elif future:
            future.set_result(message.result)

    def _give_up(self) -> None:
        assert self._why  # noqa: S101  # set before gone is
        while self._waiting:
            with suppress(KeyError):  # another thread was quicker
                _, (future, _) = self._waiting.popitem()
                future.set_exception(Gone(self._why))


def _late(model_id: str, seconds: float) -> FailedPrecondition:
    return FailedPrecondition(
        f"{model_id} was not there within {seconds:g} s",
        reason="LOAD_FAILED",
        remedy="look at the log of the expert, or let the operator raise EXPERT_LOAD_SECONDS",
    )


def _cause(model_id: str, status: int) -> ServiceError:
    if status == -signal.SIGKILL:
        return OutOfMemory(
            f"the process of {model_id} was killed, most likely for want of memory",
            remedy="send a smaller input, or give the expert more memory",
        )
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return ModelFailed(
        f"the process of {model_id} died on this input: {how}", remedy="try another input or another model"
    )
