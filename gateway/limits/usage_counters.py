"""Fixed-window usage counters per minute and day, in memory or in the database shared by all gateways."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from services.common.database import Database, Query, Rows, Steps

MINUTE, DAY = 60, 24 * 3600


@dataclass(frozen=True)
class Window:
    """Usage of one limit in the current window."""

    limit: int
    used: int
    resets_in: float
    """Seconds until the window ends."""

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


class Counters(Protocol):
    """Usage counters of keys."""

    async def add(self, key_id: str, what: str, seconds: int, amount: int) -> int:
        """Adds an amount and returns the usage of the key in the current window of the given length in seconds.

        Raises:
            Unavailable: the database is unavailable.
        """
        ...


class MemoryCounters:
    """Counters of one process, lost when it ends."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._began = 0
        self._used: dict[tuple[str, str], int] = {}

    async def add(self, key_id: str, what: str, seconds: int, amount: int) -> int:
        began = window_start(self._clock(), seconds)
        if began != self._began:
            self._began = began
            self._used.clear()
        self._used[key_id, what] = self._used.get((key_id, what), 0) + amount
        return self._used[key_id, what]


class StoredCounters:
    """Counters in the database; each addition is one atomic statement."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def add(self, key_id: str, what: str, seconds: int, amount: int) -> int:
        began = window_start(self._clock(), seconds)
        if not amount:
            rows = await self._database.read(_SELECT, key_id, what, began)
            return int(rows[0][0]) if rows else 0

        def operation() -> Steps[Rows]:
            return (yield add_usage_query(key_id, what, began, amount, alone=True))

        ((used,),) = await self._database.write(operation)
        return int(used)


_SELECT = "SELECT used FROM key_usage WHERE key_id = ? AND what = ? AND began = ?"


def add_usage_query(key_id: str, what: str, began: int, amount: int, *, alone: bool = False) -> Query:
    """Returns the statement that adds to a window and returns its new value."""
    sql = (
        "INSERT INTO key_usage (key_id, what, began, used) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (key_id, what, began) DO UPDATE SET used = key_usage.used + excluded.used RETURNING used"
    )
    return Query(sql, (key_id, what, began, amount), alone=alone)


def window_start(now: float, seconds: int) -> int:
    """Returns the start of the window that contains a Unix time."""
    return int(now // seconds) * seconds
