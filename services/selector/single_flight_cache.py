"""Single-flight cache: equal concurrent requests share one computation, whose result is cached for a while."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(eq=False)
class _Flight(Generic[V]):
    """A computation in flight."""

    task: asyncio.Task[V]
    waiting: int = 0
    """Number of callers that wait."""
    charged: bool = False
    """Whether the usage was reported to a caller."""


class SingleFlightCache(Generic[K, V]):
    """Computes each value once for all concurrent callers; a cancelled caller does not affect the others.

    Args:
        should_store: whether a value is cached.
        seconds: how long a value is cached.
        size: number of cached values; the oldest are dropped first.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        should_store: Callable[[V], bool],
        *,
        seconds: float,
        size: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._should_store = should_store
        self._seconds = seconds
        self._size = size
        self._clock = clock
        self._flights: dict[K, _Flight[V]] = {}
        self._stored: OrderedDict[K, tuple[float, V]] = OrderedDict()
        """Values with the times at which they expire, oldest first."""

    async def get(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> tuple[V, bool]:
        """The value, and whether its usage is charged to this caller; exactly one of those that share it is charged.

        Args:
            key: all that the value depends on.
            compute: called if no value is cached or in flight; cancelled once no caller waits. Its errors go to all
                waiting callers.
        """
        if key in self._stored and self._stored[key][0] > self._clock():
            return self._stored[key][1], False
        flight = self._flights.get(key) or self._start(key, compute)
        flight.waiting += 1
        try:
            value = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                await self._cancel(key, flight)
        is_charged, flight.charged = not flight.charged, True
        return value, is_charged

    def _start(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]]) -> _Flight[V]:
        flight = self._flights[key] = _Flight(asyncio.create_task(compute(), name="single-flight"))
        flight.task.add_done_callback(partial(self._finish, key, flight))
        return flight

    async def _cancel(self, key: K, flight: _Flight[V]) -> None:
        del self._flights[key]
        flight.task.cancel()
        await asyncio.wait([flight.task])

    def _finish(self, key: K, flight: _Flight[V], task: asyncio.Task[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not task.cancelled() and task.exception() is None and self._should_store(task.result()):
            self._stored[key] = (self._clock() + self._seconds, task.result())
            self._stored.move_to_end(key)
            while len(self._stored) > self._size:
                self._stored.popitem(last=False)
