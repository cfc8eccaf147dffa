"""A pool of worker processes, and the order in which calls get them.

Most calls take milliseconds. One that runs for longer than that is slow: only a share of the workers is for slow
calls, so that a few hostile files cannot occupy them all. A slow call beyond that share runs only as long as no other
call waits; then its worker is killed, and it is started again later.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import structlog

from experts.host.devices import resident_bytes
from experts.host.handler import Call
from experts.host.isolation import messages
from experts.host.isolation.exchange import POLL_SECONDS, Exchange, Job, RunAgain, WorkerError, closed_error
from experts.host.isolation.limits import Budget, Limits
from experts.host.isolation.processes import ForkServerProcess, WorkerProcess
from experts.host.threads import mark_blocked

log = structlog.get_logger(__name__)


class Pool:
    """Worker processes of one kind.

    Args:
        server: returns the fork server, restarted if it has ended.
        limits: for each call.
        size: how many processes.
        slow: how many of them slow calls may occupy.
        slow_seconds: processor time from which on a call is slow.
        prepare: what each process does before its first call.
    """

    def __init__(
        self,
        server: Callable[[], ForkServerProcess],
        limits: Limits,
        *,
        size: int,
        slow: int,
        slow_seconds: float,
        prepare: messages.Prepare = messages.NOTHING,
    ) -> None:
        self._server, self._limits, self._prepare = server, limits, prepare
        self._size, self._slow, self._slow_seconds = size, slow, slow_seconds
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._numbers = count()
        self._workers: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []
        self._starting = 0
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._failure: Exception | None = None
        self._closed = False

    @property
    def process_ids(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(worker.pid for worker in self._workers)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more calls."""
        return self._closed

    @property
    def running(self) -> int:
        """Calls that have a worker."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Calls that wait for a worker."""
        return len(self._waiting)

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the workers; shared pages count for each of them."""
        return sum(resident_bytes(process_id) for process_id in self.process_ids)

    def start(self) -> None:
        """Begins to start the first worker, without waiting for it."""
        with self._lock:
            self._fill()

    def wait_ready(self) -> None:
        """Waits until one worker is ready.

        Raises:
            Exception: as raised by what the workers prepare.
        """
        with self._changed:
            self._failure = None
            self._fill()
            self._changed.wait_for(lambda: self._workers or self._failure or self._closed)
            if not self._workers:
                raise self._failure or closed_error()

    def run(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        file: str,
        port: str,
        budget: Budget | None = None,
        tenant: str = "",
        background: bool = False,
        call: Call | None = None,
    ) -> Any:
        """Runs the function in a worker and returns its result; blocks the thread.

        Args:
            function: importable by its name.
            arguments: what it is called with.
            file: name of the file, for errors.
            port: the input port of the file, for errors.
            budget: shared with other calls on the same file.
            tenant: of two callers, the one with fewer running calls comes first.
            background: interactive calls come first.
            call: where progress goes; the call ends soon after that one is cancelled.

        Raises:
            InvalidRequest: DECODE_LIMIT or DECODE_CRASH, or as raised by the function.
            Exception: as raised by the function.
        """
        budget = budget or Budget()
        job = Job(function, arguments, file, port, budget, tenant, background, call, next(self._numbers))
        with mark_blocked():
            while True:
                worker = self._acquire(job)
                is_alive = False
                try:
                    result = self._exchange(job, worker).run()
                    is_alive = True
                except RunAgain:
                    continue
                except WorkerError as raised:
                    is_alive = raised.is_alive
                    raise raised.error from None
                else:
                    return result
                finally:
                    self._release(job, worker, is_alive=is_alive)

    def close(self) -> None:
        """Ends all workers; calls that wait or run fail."""
        with self._changed:
            self._closed = True
            workers, waiting = tuple(self._workers), tuple(self._waiting)
            self._waiting.clear()
            for job in waiting:
                job.error = closed_error()
                job.assigned.set()
            self._changed.notify_all()
        for worker in workers:
            worker.kill()

    # -------------------------------------------------------------- which call gets which worker

    def _acquire(self, job: Job) -> WorkerProcess:
        with self._lock:
            if self._closed:
                raise closed_error()
            job.assigned.clear()
            job.worker, job.is_preempted = None, False
            self._waiting.append(job)
            self._failure = None
            self._dispatch()
        while not job.assigned.wait(POLL_SECONDS):
            if job.is_cancelled:
                with self._lock:
                    if job in self._waiting:
                        self._waiting.remove(job)
                        raise asyncio.CancelledError
        if job.error:
            raise job.error
        assert job.worker  # noqa: S101  # as assigned
        return job.worker

    def _release(self, job: Job, worker: WorkerProcess, *, is_alive: bool) -> None:
        if is_alive:
            worker.channel.shrink()
        with self._lock:
            self._running.remove(job)
            is_alive = is_alive and not job.is_preempted and not worker.ended.is_set() and not self._closed
            if is_alive:
                self._idle.append(worker)
            else:
                self._workers.discard(worker)
            self._dispatch()
        if not is_alive:
            worker.close()

    def _dispatch(self) -> None:
        """Assigns free workers to waiting calls, and preempts slow calls if none is left; under the lock."""
        self._fill()
        while self._idle and self._waiting:
            job = self._next()
            self._waiting.remove(job)
            job.worker = self._idle.pop()
            self._running.append(job)
            job.assigned.set()
        quick = sum(not job.is_slow for job in self._waiting)
        expected = self._starting + sum(job.is_preempted for job in self._running)
        slow = sorted(
            (job for job in self._running if job.is_slow and not job.is_preempted), key=lambda job: job.number
        )
        for job in slow[self._slow :][: max(0, quick - expected)]:
            job.is_preempted = True
            assert job.worker  # noqa: S101  # it runs
            job.worker.kill()

    def _next(self) -> Job:
        """Selects a call: quick before slow, except for the share of slow ones; then by priority and tenant."""
        running = Counter(job.tenant for job in self._running)
        share_left = sum(job.is_slow for job in self._running) < self._slow

        def order(job: Job) -> tuple[bool, bool, int, int]:
            return job.is_slow and not share_left, job.background, running[job.tenant], job.number

        return min(self._waiting, key=order)

    def _fill(self) -> None:
        """Starts the workers that are missing for the calls there are, and one in any case; under the lock."""
        needed = min(self._size, max(1, len(self._running) + len(self._waiting)))
        while not self._closed and not self._failure and len(self._workers) + self._starting < needed:
            self._starting += 1
            threading.Thread(target=self._start_worker, name="start-worker", daemon=True).start()

    def _start_worker(self) -> None:
        worker, failure = None, None
        try:
            worker = WorkerProcess(self._server(), self._prepare, self._on_exit)
        except Exception as error:  # noqa: BLE001  # reported to the waiting calls
            failure = error
        with self._changed:
            self._starting -= 1
            if worker and (self._closed or worker.ended.is_set()):
                worker.close()
            elif worker:
                self._workers.add(worker)
                self._idle.append(worker)
            if failure and not self._closed:
                self._fail(failure)
            self._dispatch()
            self._changed.notify_all()

    def _fail(self, failure: Exception) -> None:
        """Records that no worker can be started; fails waiting calls if there is no other worker; under the lock."""
        log.error("worker process not started", error=str(failure))
        self._failure = failure
        if self._workers:
            return
        for job in self._waiting:
            job.error = failure
            job.assigned.set()
        self._waiting.clear()

    def _on_exit(self, worker: WorkerProcess) -> None:
        """Removes an idle worker that has ended; a busy one is replaced when its call fails."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                self._workers.discard(worker)
                worker.channel.close()
            if not self._closed:
                self._dispatch()

    def _exchange(self, job: Job, worker: WorkerProcess) -> Exchange:
        return Exchange(
            job,
            worker,
            self._limits,
            slow_seconds=self._slow_seconds,
            on_slow=lambda: self._on_slow(job),
            is_closed=lambda: self._closed,
        )

    def _on_slow(self, job: Job) -> None:
        with self._lock:
            job.budget.is_slow = True
            self._dispatch()
