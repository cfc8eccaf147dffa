"""How much was used in the present minute or day: counted in memory, or in the database for all gateways together."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from services.common.database import Database, Query, Rows, Steps

MINUTE, DAY = 60, 24 * 3600


@dataclass(frozen=True)
class Window:
    """What may be used until a time, and what has been."""

    limit: int
    used: int
    resets_in: float
    """Seconds."""

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


class Counters(Protocol):
    """Counts what keys use."""

    async def add(self, key_id: str, what: str, seconds: int, amount: int) -> int:
        """What the key has used since the window of so many seconds began, with that amount.

        Raises:
            Unavailable: the database does not answer.
        """
        ...


class MemoryCounters:
    """Of one process; what it has counted ends with it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._began = 0
        self._used: dict[tuple[str, str], int] = {}

    async def add(self, key_id: str, what: str, seconds: int, amount: int) -> int:
        began = beginning(self._clock(), seconds)
        if began != self._began:
            self._began = began
            self._used.clear()
        self._used[key_id, what] = self._used.get((key_id, what), 0) + amount
        return self._used[key_id, what]


class StoredCounters:
    """Of all gateways on one database, which counts in one statement, so that none is lost."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def add(self, key_id: str, what: str, seconds: int, amount: int) -> int:
        began = beginning(self._clock(), seconds)
        if not amount:
            rows = await self._database.read(_LOOK, key_id, what, began)
            return int(rows[0][0]) if rows else 0

        def operation() -> Steps[Rows]:
            return (yield counted(key_id, what, began, amount, alone=True))

        ((used,),) = await self._database.write(operation)
        return int(used)


_LOOK = "SELECT used FROM key_usage WHERE key_id = ? AND what = ? AND began = ?"


def counted(key_id: str, what: str, began: int, amount: int, *, alone: bool = False) -> Query:
    """Adds to a window; gives what it then is."""
    sql = (
        "INSERT INTO key_usage (key_id, what, began, used) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (key_id, what, began) DO UPDATE SET used = key_usage.used + excluded.used RETURNING used"
    )
    return Query(sql, (key_id, what, began, amount), alone=alone)


def beginning(now: float, seconds: int) -> int:
    """When the window began that now is in."""
    return int(now // seconds) * seconds
