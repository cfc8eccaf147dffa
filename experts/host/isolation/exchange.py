"""One call in one worker process: sends it, watches its limits, and says what its end means."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from experts.host import metering
from experts.host.handler import Call
from experts.host.isolation import messages
from experts.host.isolation.limits import MEMORY, PROCESSOR, WALL, Budget, Limits, crashed, limit_exceeded
from experts.host.isolation.processes import Exit, Worker
from services.common.errors import ServiceError, Unavailable

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.05
"""How often a call is checked for its limits, and for a caller that has left."""

_SLOW_WALL = 5
"""A call that has run for so many times the processor time of a slow one is slow, too: it may only wait."""
_MEMORY_SHARE = 0.5
"""A worker that crashes with so much of its memory in use is taken to have run out of it."""


@dataclass(eq=False)
class Job:
    """One call, waiting for a worker or running in one."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    file: str
    port: str
    budget: Budget
    tenant: str
    background: bool
    call: Call | None
    """Its progress is reported there; it ends when that is cancelled."""
    number: int
    worker: Worker | None = None
    error: Exception | None = None
    is_preempted: bool = False
    met_ended_worker: bool = False
    """Its first worker ended without taking it."""
    cpu_at_start: float = 0.0
    """Processor time its worker had used before."""

    def __post_init__(self) -> None:
        self.assigned = threading.Event()

    @property
    def name(self) -> str:
        """Of its function, which may be a partial one."""
        return str(getattr(getattr(self.function, "func", self.function), "__name__", self.function))

    @property
    def is_slow(self) -> bool:
        return self.budget.is_slow

    @property
    def is_cancelled(self) -> bool:
        return self.call is not None and self.call.cancelled


class Again(Exception):
    """The call has to be run by another worker."""


class WorkerError(Exception):
    """What a worker reported of a call."""

    def __init__(self, error: Exception, *, is_alive: bool) -> None:
        super().__init__()
        self.error, self.is_alive = error, is_alive


def closed_error() -> ServiceError:
    return Unavailable("the expert ends", remedy="try again")


class Exchange:
    """One call in one worker.

    Args:
        job: the call.
        worker: runs it.
        limits: for the call.
        slow_seconds: processor time from which on it is slow.
        on_slow: called when it becomes so.
        is_closed: whether the pool has been closed.
    """

    def __init__(
        self,
        job: Job,
        worker: Worker,
        limits: Limits,
        *,
        slow_seconds: float,
        on_slow: Callable[[], None],
        is_closed: Callable[[], bool],
    ) -> None:
        self._job, self._worker, self._limits = job, worker, limits
        self._slow_seconds, self._on_slow, self._is_closed = slow_seconds, on_slow, is_closed

    def run(self) -> Any:
        """The function's result.

        Raises:
            Again: it has to be run by another worker.
            WorkerError: as raised by the function, or the worker's report of it.
            InvalidRequest: DECODE_LIMIT or DECODE_CRASH.
        """
        job, worker = self._job, self._worker
        limits, begun = job.budget.rest(self._limits), time.monotonic()
        message = messages.Run(job.function, job.arguments, limits.memory_bytes, limits.cpu_seconds)
        killed: BaseException | None = None
        job.cpu_at_start = metering.cpu_seconds_of(worker.pid)
        try:
            worker.channel.send(message)
            while True:
                if worker.channel.poll(LOOK_SECONDS):
                    reply = worker.channel.receive()
                    if not isinstance(reply, messages.Progress):
                        return self._result(job, reply, time.monotonic() - begun)
                    if job.call:
                        job.call.progress(reply.fraction, reply.message)
                elif killed is None:
                    killed = self._overdue(job, time.monotonic() - begun, limits)
                    if killed:
                        worker.kill()
        except (EOFError, OSError):
            raise self._died(job, worker.wait(), killed, time.monotonic() - begun) from None

    def _overdue(self, job: Job, seconds: float, limits: Limits) -> BaseException | None:
        """Marks a call that has become slow; the reason to end it, if there is one."""
        if not job.is_slow and self._is_slow(job, seconds):
            self._on_slow()
        if job.is_cancelled:
            return asyncio.CancelledError()
        if seconds > limits.wall_seconds:
            return limit_exceeded(WALL, self._limits, file=job.file, port=job.port)
        return None

    def _is_slow(self, job: Job, seconds: float) -> bool:
        """By its processor time: on a busy machine an ordinary call takes long, too."""
        assert job.worker  # noqa: S101  # it runs
        used = metering.cpu_seconds_of(job.worker.pid) - job.cpu_at_start
        return used > self._slow_seconds or seconds > _SLOW_WALL * self._slow_seconds

    def _result(self, job: Job, reply: Any, seconds: float) -> Any:
        job.budget.add(reply.cpu_seconds, seconds)
        if isinstance(reply, messages.Done):
            return reply.result
        if isinstance(reply, messages.OutOfMemory):
            error: Exception = limit_exceeded(MEMORY, self._limits, file=job.file, port=job.port)
            raise WorkerError(error, is_alive=False)
        if not isinstance(reply.error, ServiceError):
            log.error("isolated call failed", function=job.name, where=reply.where)
        raise WorkerError(reply.error, is_alive=True)

    def _died(self, job: Job, exited: Exit, killed: BaseException | None, seconds: float) -> BaseException:
        """What a worker's death means for the call it ran."""
        if killed is None and not self._is_closed():
            if job.is_preempted:
                return Again()
            if exited.status == 0 and not job.met_ended_worker:  # it was about to be replaced when the call came
                job.met_ended_worker = True
                return Again()
        if self._is_closed():
            return closed_error()
        job.budget.add(0.0, seconds)
        if killed:
            return killed
        error = self._cause(job, exited)
        log.warning("worker died", function=job.name, status=exited.status, error=error.message)
        return error

    def _cause(self, job: Job, exited: Exit) -> ServiceError:
        if exited.status == -signal.SIGXCPU:
            return limit_exceeded(PROCESSOR, self._limits, file=job.file, port=job.port)
        if exited.status == -signal.SIGKILL or exited.peak_bytes > _MEMORY_SHARE * self._limits.memory_bytes:
            return limit_exceeded(MEMORY, self._limits, file=job.file, port=job.port)
        return crashed(exited.status, file=job.file, port=job.port)
