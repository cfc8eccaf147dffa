"""Runs one call in one worker process: sends it, enforces its limits, and translates a worker's death to an error."""

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
from experts.host.isolation.limits import MEMORY, PROCESSOR, WALL, Budget, Limits, crash_error, limit_error
from experts.host.isolation.processes import Exit, WorkerProcess
from services.common.errors import ServiceError, Unavailable

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.05
"""Interval at which a call is checked for its limits and for cancellation."""

_SLOW_WALL_FACTOR = 5
"""A call is also slow after so many times the slow processor time in wall time, as it may wait without computing."""
_OUT_OF_MEMORY_SHARE = 0.5
"""Share of its memory limit above which a worker's crash counts as running out of memory."""


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
    """Receives its progress; the job ends when this call is cancelled."""
    number: int
    worker: WorkerProcess | None = None
    error: Exception | None = None
    is_preempted: bool = False
    met_ended_worker: bool = False
    """Whether its first worker ended before it started the call."""
    cpu_at_start: float = 0.0
    """Processor time that its worker had used before the call."""

    def __post_init__(self) -> None:
        self.assigned = threading.Event()

    @property
    def name(self) -> str:
        """Name of its function, which may be a partial."""
        return str(getattr(getattr(self.function, "func", self.function), "__name__", self.function))

    @property
    def is_slow(self) -> bool:
        return self.budget.is_slow

    @property
    def is_cancelled(self) -> bool:
        return self.call is not None and self.call.cancelled


class RunAgain(Exception):
    """The call must be run by another worker."""


class WorkerError(Exception):
    """Error of a call, as reported by its worker."""

    def __init__(self, error: Exception, *, is_alive: bool) -> None:
        super().__init__()
        self.error, self.is_alive = error, is_alive


def closed_error() -> ServiceError:
    return Unavailable("the expert is shutting down", remedy="try again")


class Exchange:
    """One call in one worker.

    Args:
        job: the call.
        worker: the worker that runs it.
        limits: of the call.
        slow_seconds: processor time from which on the call is slow.
        on_slow: called when it becomes slow.
        is_closed: returns whether the pool has been closed.
    """

    def __init__(
        self,
        job: Job,
        worker: WorkerProcess,
        limits: Limits,
        *,
        slow_seconds: float,
        on_slow: Callable[[], None],
        is_closed: Callable[[], bool],
    ) -> None:
        self._job, self._worker, self._limits = job, worker, limits
        self._slow_seconds, self._on_slow, self._is_closed = slow_seconds, on_slow, is_closed

    def run(self) -> Any:
        """Runs the call and returns the function's result.

        Raises:
            RunAgain: the call must be run by another worker.
            WorkerError: the function raised an error.
            InvalidRequest: DECODE_LIMIT or DECODE_CRASH.
        """
        job, worker = self._job, self._worker
        limits, started_at = job.budget.remaining(self._limits), time.monotonic()
        message = messages.Run(job.function, job.arguments, limits.memory_bytes, limits.cpu_seconds)
        killed: BaseException | None = None
        job.cpu_at_start = metering.cpu_seconds_of(worker.pid)
        try:
            worker.channel.send(message)
            while True:
                if worker.channel.poll(POLL_SECONDS):
                    reply = worker.channel.receive()
                    if not isinstance(reply, messages.Progress):
                        return self._result(job, reply, time.monotonic() - started_at)
                    if job.call:
                        job.call.progress(reply.fraction, reply.message)
                elif killed is None:
                    killed = self._check_time(job, time.monotonic() - started_at, limits)
                    if killed:
                        worker.kill()
        except (EOFError, OSError):
            raise self._exit_error(job, worker.wait(), killed, time.monotonic() - started_at) from None

    def _check_time(self, job: Job, seconds: float, limits: Limits) -> BaseException | None:
        """Marks the call if it has become slow; returns the error with which it must end, if any."""
        if not job.is_slow and self._is_slow(job, seconds):
            self._on_slow()
        if job.is_cancelled:
            return asyncio.CancelledError()
        if seconds > limits.wall_seconds:
            return limit_error(WALL, self._limits, file=job.file, port=job.port)
        return None

    def _is_slow(self, job: Job, seconds: float) -> bool:
        """Whether the call is slow, mainly by processor time: on a busy machine ordinary calls take long, too."""
        assert job.worker  # noqa: S101  # it runs
        used = metering.cpu_seconds_of(job.worker.pid) - job.cpu_at_start
        return used > self._slow_seconds or seconds > _SLOW_WALL_FACTOR * self._slow_seconds

    def _result(self, job: Job, reply: Any, seconds: float) -> Any:
        job.budget.add(reply.cpu_seconds, seconds)
        if isinstance(reply, messages.Done):
            return reply.result
        if isinstance(reply, messages.OutOfMemory):
            error: Exception = limit_error(MEMORY, self._limits, file=job.file, port=job.port)
            raise WorkerError(error, is_alive=False)
        if not isinstance(reply.error, ServiceError):
            log.error("isolated call failed", function=job.name, where=reply.where)
        raise WorkerError(reply.error, is_alive=True)

    def _exit_error(self, job: Job, exited: Exit, killed: BaseException | None, seconds: float) -> BaseException:
        """Returns the error for the call of a worker that has died."""
        if killed is None and not self._is_closed():
            if job.is_preempted:
                return RunAgain()
            if exited.status == 0 and not job.met_ended_worker:  # it was being replaced when the call arrived
                job.met_ended_worker = True
                return RunAgain()
        if self._is_closed():
            return closed_error()
        job.budget.add(0.0, seconds)
        if killed:
            return killed
        error = self._failure_cause(job, exited)
        log.warning("worker died", function=job.name, status=exited.status, error=error.message)
        return error

    def _failure_cause(self, job: Job, exited: Exit) -> ServiceError:
        if exited.status == -signal.SIGXCPU:
            return limit_error(PROCESSOR, self._limits, file=job.file, port=job.port)
        if exited.status == -signal.SIGKILL or exited.peak_bytes > _OUT_OF_MEMORY_SHARE * self._limits.memory_bytes:
            return limit_error(MEMORY, self._limits, file=job.file, port=job.port)
        return crash_error(exited.status, file=job.file, port=job.port)
