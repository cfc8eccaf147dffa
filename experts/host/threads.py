"""Daemon threads that run functions for coroutines."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

Jobs = SimpleQueue[Callable[[], None] | None]


class ThreadSafeFuture(Generic[T]):
    """A future of the running event loop that any thread may complete."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def set_result(self, result: T) -> None:
        self._schedule(self.future.set_result, result)

    def set_exception(self, error: BaseException) -> None:
        self._schedule(self.future.set_exception, to_sendable_error(error))

    def _schedule(self, complete: Callable[[V], None], outcome: V) -> None:
        with suppress(RuntimeError):  # the loop has closed, so there are no waiters
            self._loop.call_soon_threadsafe(self._complete, complete, outcome)

    def _complete(self, complete: Callable[[V], None], outcome: V) -> None:
        if not self.future.done():
            complete(outcome)


class ThreadPool:
    """Daemon threads with one queue; functions cancelled before they start are skipped.

    Unlike an executor's, threads that are stuck in native code do not keep the process from exiting.

    Args:
        name: prefix of the threads' names.
        count: number of threads.
        elastic: whether a thread that waits for another process (`mark_blocked`) is replaced meanwhile.
    """

    def __init__(self, name: str, count: int = 1, *, elastic: bool = False) -> None:
        self._name, self._count, self._elastic = name, count, elastic
        self._jobs: Jobs = SimpleQueue()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._alive = self._blocked = 0
        with self._lock:
            self._fill()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the function on a thread; if cancelled meanwhile, the function completes and its result is dropped."""
        future: ThreadSafeFuture[T] = ThreadSafeFuture()  # subscripted it would take twice the time
        context = copy_context()

        def job() -> None:
            if future.future.cancelled():
                return
            try:
                future.set_result(context.run(function, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # reported to the caller
                future.set_exception(error)

        self.post(job)
        return await future.future

    def post(self, job: Callable[[], None]) -> None:
        """Queues a function that raises nothing."""
        self._jobs.put(job)

    def close(self) -> None:
        """Ends the threads once the queue is empty, without waiting for them."""
        self._jobs.put(None)

    @contextmanager
    def mark_blocked(self) -> Iterator[None]:
        """Marks the current thread, one of this pool, as waiting within the block."""
        if not self._elastic:
            yield
            return
        with self._lock:
            self._blocked += 1
            self._fill()
        try:
            yield
        finally:
            with self._lock:
                self._blocked -= 1

    def is_superfluous(self) -> bool:
        """Whether there are too many threads, so that the current one must end; removes it from the count."""
        with self._lock:
            superfluous = self._alive - self._blocked > self._count
            self._alive -= superfluous
            return superfluous

    def _fill(self) -> None:
        while self._alive - self._blocked < self._count:
            self._alive += 1
            _WorkerThread(f"{self._name}-{next(self._numbers)}", self, self._jobs).start()


class _WorkerThread(threading.Thread):
    def __init__(self, name: str, threads: ThreadPool, jobs: Jobs) -> None:
        super().__init__(name=name, daemon=True)
        self.busy = False
        self.threads = threads
        self._jobs = jobs

    def run(self) -> None:
        while job := self._jobs.get():
            self.busy = True
            job()
            del job  # frees the input and output of the call
            self.busy = False
            if self.threads.is_superfluous():
                return
        self._jobs.put(None)  # for the other threads


def mark_blocked() -> AbstractContextManager[None]:
    """Marks the current thread as waiting within the block: an elastic ThreadPool runs another in its place."""
    thread = threading.current_thread()
    return thread.threads.mark_blocked() if isinstance(thread, _WorkerThread) else nullcontext()


def any_busy() -> bool:
    """Whether a function still runs on any ThreadPool, closed or not."""
    return any(thread.busy for thread in threading.enumerate() if isinstance(thread, _WorkerThread))


def to_sendable_error(error: BaseException) -> Exception:
    """Returns the error, or a RuntimeError in place of one that would end a generator, a task or the process."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__} in a thread").with_traceback(error.__traceback__)
