"""Threads that work for coroutines."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
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
    """A fixed number of threads with one queue; what was cancelled before its turn is left out.

    They are daemons, unlike those of an executor: one that is stuck in native code never keeps the process from ending.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        self._count = count
        self._jobs: Jobs = SimpleQueue()
        for number in range(count):
            _Worker(f"{name}-{number}", self._jobs).start()

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
        for _ in range(self._count):
            self._jobs.put(None)


class _Worker(threading.Thread):
    def __init__(self, name: str, jobs: Jobs) -> None:
        super().__init__(name=name, daemon=True)
        self.busy = False
        self._jobs = jobs

    def run(self) -> None:
        while job := self._jobs.get():
            self.busy = True
            job()
            del job  # and the input and output of the call with it
            self.busy = False


def any_busy() -> bool:
    """Whether a function of any Threads runs still, closed or not."""
    return any(thread.busy for thread in threading.enumerate() if isinstance(thread, _Worker))


def sendable(error: BaseException) -> Exception:
    """The error itself, unless it would end something on the loop: a generator, a task, the process."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__} in a thread").with_traceback(error.__traceback__)
