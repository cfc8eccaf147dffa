"""Threads that work for coroutines."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

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
                settle: Callable[[], None] = _Settled(future, result=context.run(function, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
                settle = _Settled(future, error=_sendable(error))
            with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
                loop.call_soon_threadsafe(settle)

        self._jobs.put(job)
        return await future

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
            self.busy = False


def any_busy() -> bool:
    """Whether a function of any Threads runs still, closed or not."""
    return any(thread.busy for thread in threading.enumerate() if isinstance(thread, _Worker))


class _Settled:
    """Gives a future its end, on its loop."""

    def __init__(self, future: asyncio.Future[Any], *, result: object = None, error: Exception | None = None) -> None:
        self._future, self._result, self._error = future, result, error

    def __call__(self) -> None:
        if self._future.done():
            return
        if self._error:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._result)


def _sendable(error: BaseException) -> Exception:
    """The error itself, unless it would end something on the loop: a generator, a task, the process."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    sendable = RuntimeError(f"{type(error).__name__} in a thread")
    sendable.__cause__ = error
    return sendable
