"""Models in processes of their own, seen from the expert.

A crash in native code, the system's out-of-memory killer or a call that never comes back takes down one of them, not
the server: its calls get an error, and it is started again.
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
from experts.host.handler import Call, Elsewhere, Handler, Inputs, Loader, Outputs, Parameters, is_concurrent
from experts.host.isolation import Configuration
from experts.host.worker_process import Gone, Worker
from experts.host.worker_protocol import Start, Told
from services.common.errors import FailedPrecondition, ModelFailed, OutOfMemory, ServiceError, Unavailable

BROKEN_SECONDS = 30.0
"""How long a model whose worker does not come up again is not tried again."""


@dataclass(frozen=True)
class Workers:
    """How worker processes are started."""

    threads: int
    load_seconds: float
    """Longest load of a model."""
    log: tuple[str, str]
    """Level and format."""
    isolation: Configuration
    """The processes that each of them decodes files in."""

    def loader(self, task: str, loader: Loader) -> Loader:
        """A loader whose models live in processes of their own, but for those that run elsewhere anyway."""
        return partial(self._load, task, loader)

    def _load(self, task: str, loader: Loader, model_id: str, device: str) -> Handler | Elsewhere:
        try:
            pickled = pickle.dumps(loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            return _only_elsewhere(task, loader(model_id, device), error)
        current = load_context.current()
        told = (
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
        remote = Remote(Start(tuple(sys.path), pickled, *told))
        if not remote.elsewhere:
            return remote
        remote.close()
        return loader(model_id, device)


def _only_elsewhere(task: str, model: Handler | Elsewhere, error: Exception) -> Handler | Elsewhere:
    """The model itself, which no worker process could load, if it needs none."""
    if hasattr(model, "ask") or is_concurrent(model):
        return model
    raise FailedPrecondition(
        f"the loader of {task} cannot run in a worker process: {error}",
        reason="LOAD_FAILED",
        remedy="make it a function at the top of a module, or unset EXPERT_WORKERS",
    ) from None


class Ticket:
    """An item in the worker process, and what it was made of: should that process die, another makes it anew."""

    def __init__(self, number: int, inputs: Inputs, parameters: Parameters) -> None:
        self.number = number
        self.given = dict(inputs), dict(parameters)
        self.cost = 1.0
        self.worker: Worker | None = None
        """Where the item is."""
        self.survivor = False
        """It was in a batch that killed a worker: it or a mate of it may do so again."""
        self.outputs: Outputs | None = None


class Remote:
    """A Handler whose model lives in another process, and comes back when that dies."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._numbers = count(1)
        self._dropped: deque[int] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._since: float | None = None
        self._broken: tuple[float, ServiceError] | None = None
        with self._lock:
            self._worker, told = self._started(load_context.current().progress)
        self.batching, self.revision, self.elsewhere = told.batching, told.revision, told.elsewhere
        self.memory_bytes = told.resident_bytes if start.device == CPU else 0

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Ticket:
        ticket = Ticket(next(self._numbers), inputs, parameters)
        weakref.finalize(ticket, self._dropped.append, ticket.number)  # told with what is asked next
        with suppress(Gone):  # then it is made when it runs, so that nobody else's input waits for a worker to come up
            self._put(ticket, self._worker)
        return ticket

    def cost(self, item: Ticket) -> float:
        return item.cost

    def run(self, items: Sequence[Ticket], call: Call) -> Sequence[Ticket]:
        worker = self._current()
        try:
            for ticket in items:
                if ticket.worker is not worker:
                    self._put(ticket, worker)
            self._since = time.monotonic()
            results = worker.run([ticket.number for ticket in items], call)
            for ticket in items:
                if ticket.survivor:  # the next to run may be the one that kills
                    ticket.outputs = worker.ask("finish", [ticket.number])
        except Gone as gone:
            for ticket in items:
                ticket.survivor = True
            raise gone.error from None
        finally:
            self._since = None
        return list(items) if results == len(items) else [items[0]] * results

    def finish(self, raw: Ticket) -> Outputs:
        if raw.outputs is not None:
            return raw.outputs
        assert raw.worker  # noqa: S101  # it ran there
        try:
            outputs: Outputs = raw.worker.ask("finish", [raw.number])
        except Gone:
            raise Unavailable(
                f"the process of {self._start.model_id} died before the result was written", remedy="ask again"
            ) from None
        return outputs

    def kill(self, seconds: float) -> None:
        """Ends a process that has been at a batch for so long; the time it takes to come up again does not count."""
        if self._since is None or time.monotonic() - self._since < seconds:
            return
        remedy = "try another input or another model, or let the operator raise EXPERT_DEVICE_SECONDS"
        message = f"{self._start.model_id} did not come back within {seconds:g} s"
        self._worker.end(ModelFailed(message, remedy=remedy))

    def close(self) -> None:
        self._closed = True
        self._worker.end()

    def _put(self, ticket: Ticket, worker: Worker) -> None:
        forget = [self._dropped.popleft() for _ in range(len(self._dropped))]
        ticket.cost = worker.ask("prepare", [ticket.number], ticket.given, forget)
        ticket.worker = worker

    def _current(self) -> Worker:
        """The worker, started anew if it has died.

        Raises:
            FailedPrecondition: LOAD_FAILED, it does not come up again.
        """
        with self._lock:
            if self._worker.gone.is_set():
                self._worker, _ = self._started(lambda _fraction, _message: None)
            return self._worker

    def _revive(self) -> None:
        if not self._closed:
            with suppress(ServiceError):  # told to the next who asks
                self._current()

    def _started(self, progress: Callable[[float, str], None]) -> tuple[Worker, Told]:
        if self._broken and time.monotonic() < self._broken[0]:
            raise self._broken[1]
        worker = Worker(self._start, self._revive)
        try:
            return worker, worker.load(progress)
        except Gone as gone:
            cause: ServiceError = gone.error
        except ServiceError as error:
            worker.end()
            cause = error
        failed = FailedPrecondition(cause.message, remedy=cause.remedy, reason="LOAD_FAILED")
        self._broken = time.monotonic() + BROKEN_SECONDS, failed
        raise cause if isinstance(cause, OutOfMemory) else failed
