"""Threads that work for coroutines."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Jobs = SimpleQueue[Callable[[], None] | None]


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
        loop, context = asyncio.get_running_loop(), copy_context()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            if future.cancelled():
                return
            try:
                settle = partial(_succeed, future, context.run(function, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
                settle = partial(_fail, future, sendable(error))
            with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
                loop.call_soon_threadsafe(settle)

        self.post(job)
        return await future

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


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def sendable(error: BaseException) -> Exception:
    """The error itself, unless it would end something on the loop: a generator, a task, the process."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__} in a thread").with_traceback(error.__traceback__)
