"""Runs calls on threads of their own: for some providers, the client blocks while it polls for the result."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from threading import Event, Thread
from typing import Any, TypeVar

from experts.host.threads import ThreadSafeFuture
from services.common.errors import Unavailable

T = TypeVar("T")


class CallHandle:
    """Cancels the work of a call on another thread."""

    def __init__(self) -> None:
        self._cancelled = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def check(self) -> None:
        """Checks that the call is active.

        Raises:
            Unavailable: the call was cancelled.
        """
        if self._cancelled.is_set():
            raise Unavailable("the call was cancelled")

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work until it is done or cancelled."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._cancelled.is_set():
            work.close()
        self.check()
        return await work

    def cancel(self) -> None:
        self._cancelled.set()
        if self._loop and self._task:
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._task.cancel)


_handle: ContextVar[CallHandle | None] = ContextVar("call_handle", default=None)


def check_active() -> None:
    """Checks that the current call is active; must be called before anything is sent or read on its thread.

    Raises:
        Unavailable: the call was cancelled.
    """
    if handle := _handle.get():
        handle.check()


async def run_in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs the work on a thread and event loop of its own; after a cancellation it ends at its next request."""
    future, handle, context = ThreadSafeFuture[T](), CallHandle(), copy_context()

    def target() -> None:
        _handle.set(handle)
        try:
            future.set_result(asyncio.run(handle.run(work())))
        except BaseException as error:  # noqa: BLE001  # reported to the caller
            future.set_exception(error)

    Thread(target=context.run, args=(target,), name="remote-call", daemon=True).start()
    try:
        return await future.future
    finally:
        handle.cancel()
