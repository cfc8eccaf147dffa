"""Threads that work for coroutines."""

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


class Promise(Generic[T]):
    """What a coroutine waits for, to be kept by any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def keep(self, result: T) -> None:
        self._call(self.future.set_result, result)

    def fail(self, error: BaseException) -> None:
        self._call(self.future.set_exception, sendable(error))

    def _call(self, settle: Callable[[V], None], outcome: V) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            self._loop.call_soon_threadsafe(self._settle, settle, outcome)

    def _settle(self, settle: Callable[[V], None], outcome: V) -> None:
        if not self.future.done():
            settle(outcome)


class Threads:
    """A number of threads with one queue; what was cancelled before its turn is left out.

    They are daemons, unlike those of an executor: one that is stuck in native code never keeps the process from ending.

    Args:
        name: of the threads.
        count: how many there are.
        elastic: a thread that waits for another process (`blocked`) does not count; another takes its place.
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
        """The function's result. If cancelled meanwhile, the function runs on and nobody hears of it."""
        promise: Promise[T] = Promise()  # subscripted it would take twice the time
        context = copy_context()

        def job() -> None:
            if promise.future.cancelled():
                return
            try:
                promise.keep(context.run(function, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
                promise.fail(error)

        self.post(job)
        return await promise.future

    def post(self, job: Callable[[], None]) -> None:
        """Has a thread do something that raises nothing."""
        self._jobs.put(job)

    def close(self) -> None:
        """Lets the threads end once the queue is empty; waits for none."""
        self._jobs.put(None)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """The current thread, which is one of these, only waits within the block."""
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
        """Whether the current thread is one too many, and ends now."""
        with self._lock:
            superfluous = self._alive - self._blocked > self._count
            self._alive -= superfluous
            return superfluous

    def _fill(self) -> None:
        while self._alive - self._blocked < self._count:
            self._alive += 1
            _Worker(f"{self._name}-{next(self._numbers)}", self, self._jobs).start()


class _Worker(threading.Thread):
    def __init__(self, name: str, threads: Threads, jobs: Jobs) -> None:
        super().__init__(name=name, daemon=True)
        self.busy = False
        self.threads = threads
        self._jobs = jobs

    def run(self) -> None:
        while job := self._jobs.get():
            self.busy = True
            job()
            del job  # and the input and output of the call with it
            self.busy = False
            if self.threads.is_superfluous():
                return
        self._jobs.put(None)  # for the other threads


def blocked() -> AbstractContextManager[None]:
    """The current thread only waits within the block: where it is one of elastic Threads, another takes its place."""
    thread = threading.current_thread()
    return thread.threads.blocked() if isinstance(thread, _Worker) else nullcontext()


def any_busy() -> bool:
    """Whether a function of any Threads runs still, closed or not."""
    return any(thread.busy for thread in threading.enumerate() if isinstance(thread, _Worker))


def sendable(error: BaseException) -> Exception:
    """The error itself, unless it would end something on the loop: a generator, a task, the process."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__} in a thread").with_traceback(error.__traceback__)
