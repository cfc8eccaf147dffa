"""Pages of rows of any size: limited by rows and bytes, with at least one row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

PAGE_BYTES = 8 * 1024 * 1024
"""Limit of the rows of a page: it fits into one message, and several fit into memory."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list."""

    rows: list[T]
    more: bool
    """Whether rows follow."""


def paged(keys: str, order: str, rows: str) -> str:
    """Builds a query for a page, which reads large columns only of the rows it returns.

    Its values are those of `keys`, the number of rows to look at (one more than requested), those of `rows`, and the
    number of requested rows.

    Args:
        keys: selects the row's key as mark, its bytes as size, and further columns for `order`.
        order: of the columns of `keys`.
        rows: selects many and the row's columns from measured, which has the columns of `keys`, joined with tables.
    """
    return (
        f"WITH found AS ({keys} ORDER BY {order} LIMIT ?),"  # noqa: S608  # of constants
        f" measured AS (SELECT found.*, SUM(size) OVER (ORDER BY {order}) AS upto,"
        f" ROW_NUMBER() OVER (ORDER BY {order}) AS place, COUNT(*) OVER () AS many FROM found)"
        f" {rows} WHERE place <= ? AND (place = 1 OR upto <= {PAGE_BYTES}) ORDER BY place"
    )


def page(found: Sequence[Sequence[Any]], row: Callable[[Sequence[Any]], T]) -> Page[T]:
    """Converts the result of such a query."""
    return Page([row(values) for _, *values in found], more=bool(found) and len(found) < found[0][0])
