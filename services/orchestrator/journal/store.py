"""Base of the journal's modules: measured writes, decoded messages, pages of rows, and times."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from services.common.database import Database, InsertInto, Operation, Query, Steps
from services.common.errors import Unavailable
from services.orchestrator import metrics

T = TypeVar("T")
M = TypeVar("M", bound=Message)

Inserts: TypeAlias = Sequence[tuple[InsertInto, Sequence[Sequence[Any]]]]
"""Rows to insert, by table."""

PAGE_BYTES = 8 * 1024 * 1024
"""Limit of the rows read at a time: they fit into one message, and several pages fit into memory."""

NOTHING = "SELECT 1"
"""A query that only carries inserts."""


class LeaseLost(Unavailable):
    """Another orchestrator owns the run or batch now."""

    reason = "LEASE_LOST"


def single_query(query: Query, result: Callable[[Any], T]) -> Operation[T]:
    """An operation of one query."""

    def operation() -> Steps[T]:
        return result((yield query))

    return operation


def decode(kind: type[M], content: bytes) -> M | None:
    """Decodes a stored message; None if its bytes are invalid."""
    try:
        return kind.FromString(content)
    except DecodeError:
        return None


class Store:
    """Base of the parts of the journal, for one owner.

    Args:
        database: opened with SCHEMA and MIGRATIONS.
        owner: unique name among all orchestrators.
        lease_seconds: length of a lease.
        address: at which the owner serves other orchestrators.
    """

    def __init__(self, database: Database, owner: str, lease_seconds: float, address: str = "") -> None:
        self._database = database
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._address = address
        self.accepting = asyncio.Event()
        """Set while the database accepts writes; cleared when a write fails because it is unavailable."""
        self.accepting.set()

    def _write(self, kind: str, operation: Operation[T], run_id: str = "") -> "asyncio.Future[T]":
        """Runs an operation, and records its duration under its kind."""
        future = self._database.write(operation, run_id)
        future.add_done_callback(partial(self._record_write, {"kind": kind}, time.perf_counter()))
        return future

    def _record_write(self, labels: dict[str, str], started: float, future: "asyncio.Future[Any]") -> None:
        metrics.journal_seconds.record(time.perf_counter() - started, labels)
        if future.cancelled():  # by the caller: this shows nothing about the database
            return
        error = future.exception()
        if isinstance(error, Unavailable) and not isinstance(error, LeaseLost):
            self.accepting.clear()
        else:
            self.accepting.set()


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list: limited by rows and bytes, with at least one row."""

    rows: list[T]
    more: bool
    """Whether rows follow."""


def paged(keys: str, order: str, rows: str) -> str:
    """Builds a query for a page, which reads large columns only of the rows it returns.

    Its values are those of `keys`, the number of rows to look at (one more than requested), those of `rows`, and the
    number of requested rows.

    Args:
        keys: selects the row's key as row_key, its bytes as size, and further columns for `order`.
        order: of the columns of `keys`.
        rows: selects found_rows and the row's columns from measured, which has the columns of `keys`, joined with
            tables.
    """
    return (
        f"WITH found AS ({keys} ORDER BY {order} LIMIT ?),"  # noqa: S608  # of constants
        f" measured AS (SELECT found.*, SUM(size) OVER (ORDER BY {order}) AS total_size,"
        f" ROW_NUMBER() OVER (ORDER BY {order}) AS position, COUNT(*) OVER () AS found_rows FROM found)"
        f" {rows} WHERE position <= ? AND (position = 1 OR total_size <= {PAGE_BYTES}) ORDER BY position"
    )


def to_page(found: Sequence[Sequence[Any]], row: Callable[[Sequence[Any]], T]) -> Page[T]:
    """Converts the result of such a query."""
    return Page([row(values) for _, *values in found], more=bool(found) and len(found) < found[0][0])


def to_timestamp(seconds: float) -> Timestamp:
    """Converts seconds since the epoch, rounded down to microseconds: a list that starts there must include the row."""
    result = Timestamp()
    result.FromMicroseconds(math.floor(Fraction(seconds) * 1_000_000))
    return result
