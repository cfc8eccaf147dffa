"""Pages of rows that may be large: as many as are asked for, or fewer that some megabytes hold; one at least."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

PAGE_BYTES = 8 * 1024 * 1024
"""Of what a page's rows hold in the database: it fits into one message, and several into memory."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """Part of a list."""

    rows: list[T]
    more: bool
    """Others come behind them."""


def paged(keys: str, order: str, rows: str) -> str:
    """A query for a page: what is large is read of its own rows only.

    Its values are those of keys, how many rows to look at, which is one more than are wanted, those of rows, and how
    many are wanted.

    Args:
        keys: selects a row's key as mark, its bytes as size, and what else order names.
        order: of the columns that keys selects.
        rows: selects many and the columns of the rows, from measured, which has what keys selects, joined with tables.
    """
    return (
        f"WITH found AS ({keys} ORDER BY {order} LIMIT ?),"  # noqa: S608  # of constants
        f" measured AS (SELECT found.*, SUM(size) OVER (ORDER BY {order}) AS upto,"
        f" ROW_NUMBER() OVER (ORDER BY {order}) AS place, COUNT(*) OVER () AS many FROM found)"
        f" {rows} WHERE place <= ? AND (place = 1 OR upto <= {PAGE_BYTES}) ORDER BY place"
    )


def page(found: Sequence[Sequence[Any]], row: Callable[[Sequence[Any]], T]) -> Page[T]:
    """What such a query gives."""
    return Page([row(values) for _, *values in found], more=bool(found) and len(found) < found[0][0])
