"""Answers that equal questions have in common: while the first is being found, and for a while after."""

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
    """A search under way."""

    task: asyncio.Task[V]
    waiting: int = 0
    """For how many."""
    paid: bool = False
    """Somebody has taken the answer as theirs."""


class Shared(Generic[K, V]):
    """Finds each answer once; whoever asks may leave without harm to the others.

    Args:
        worth: whether an answer is kept.
        seconds: how long.
        size: how many, the latest.
        clock: seconds; never goes back.
    """

    def __init__(
        self, worth: Callable[[V], bool], *, seconds: float, size: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._worth = worth
        self._seconds = seconds
        self._size = size
        self._clock = clock
        self._flights: dict[K, _Flight[V]] = {}
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        """Oldest first, with the time until which they hold."""

    async def get(self, key: K, find: Callable[[], Coroutine[Any, Any, V]]) -> tuple[V, bool]:
        """The answer, and whether it is the caller who pays for it: one of those who share it.

        Args:
            key: what the answer depends on.
            find: asked if nobody did; cancelled once nobody waits any more. What it raises, all get who wait.
        """
        if key in self._kept and self._kept[key][0] > self._clock():
            return self._kept[key][1], False
        flight = self._flights.get(key) or self._started(key, find)
        flight.waiting += 1
        try:
            value = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                await self._given_up(key, flight)
        pays, flight.paid = not flight.paid, True
        return value, pays

    def _started(self, key: K, find: Callable[[], Coroutine[Any, Any, V]]) -> _Flight[V]:
        flight = self._flights[key] = _Flight(asyncio.create_task(find(), name="shared"))
        flight.task.add_done_callback(partial(self._landed, key, flight))
        return flight

    async def _given_up(self, key: K, flight: _Flight[V]) -> None:
        del self._flights[key]
        flight.task.cancel()
        await asyncio.wait([flight.task])

    def _landed(self, key: K, flight: _Flight[V], task: asyncio.Task[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not task.cancelled() and task.exception() is None and self._worth(task.result()):
            self._kept[key] = (self._clock() + self._seconds, task.result())
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
