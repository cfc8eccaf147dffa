"""Calls that take a thread of their own: with some providers the client waits there, and fetches the result."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from threading import Event, Thread
from typing import Any, TypeVar

from experts.host.threads import Promise
from services.common.errors import Unavailable

T = TypeVar("T")


class Leash:
    """A call's hold on what was started for it elsewhere."""

    def __init__(self) -> None:
        self._gone = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def check(self) -> None:
        """Whether the caller is still there.

        Raises:
            Unavailable: nobody will hear of it.
        """
        if self._gone.is_set():
            raise Unavailable("the caller has left")

    async def holding(self, work: Coroutine[Any, Any, T]) -> T:
        """Does the work until the caller leaves."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._gone.is_set():
            work.close()
        self.check()
        return await work

    def leave(self) -> None:
        self._gone.set()
        if self._loop and self._task:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._task.cancel)


_leash: ContextVar[Leash | None] = ContextVar("leash", default=None)


def still_wanted() -> None:
    """To be called before anything is sent or read on a thread of its own.

    Raises:
        Unavailable: the caller has left.
    """
    if leash := _leash.get():
        leash.check()


async def apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Does the work on a thread and an event loop of its own; when the caller leaves, it ends at its next step."""
    promise, leash, context = Promise[T](), Leash(), copy_context()

    def live() -> None:
        _leash.set(leash)
        try:
            promise.keep(asyncio.run(leash.holding(work())))
        except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it
            promise.fail(error)

    Thread(target=context.run, args=(live,), name="apart", daemon=True).start()
    try:
        return await promise.future
    finally:
        leash.leave()
