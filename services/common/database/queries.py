"""What is asked of a database, in words both kinds understand: `?` for values, few differences named in Dialect."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Rows: TypeAlias = Sequence[Sequence[Any]]


class Into:
    """A table to put rows into.

    Args:
        table: its name.
        columns: PostgreSQL's types of the columns, by name.
        conflict: what to do about rows that are there, as both kinds say it.
        computed: what a column is made of its value, which stands for {}, by name; of others it is the value itself.
    """

    def __init__(
        self,
        table: str,
        columns: Mapping[str, str],
        conflict: str = "",
        computed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        named = ", ".join(columns)
        made = {name: computed.get(name, "{}") for name in columns}
        values, given = (", ".join(each.format(of or name) for name, each in made.items()) for of in ("?", ""))
        into = f"INSERT INTO {table} ({named})"
        self.one = f"{into} VALUES ({values}) {conflict}"
        """For one row of values."""
        arrays = ", ".join(f"?::{kind}[]" for kind in columns.values())
        rows = f"SELECT {given} FROM unnest({arrays}) AS given ({named}) WHERE EXISTS (SELECT FROM asked)"  # noqa: S608  # constants
        self.many = f"{into} {rows} {conflict}"
        """For one array of values per column, in a query whose first part is called asked."""


class Query(NamedTuple):
    """One statement, and rows to put into tables if it gives any."""

    sql: str
    values: Sequence[Any] = ()
    puts: Sequence[tuple[Into, Sequence[Sequence[Any]]]] = ()
    alone: bool = False
    """No other query of the operation writes: it needs no transaction around it."""


Steps: TypeAlias = Generator[Query, Rows, T]
Operation: TypeAlias = Callable[[], Steps[T]]


class Contradiction(Exception):
    """What an operation writes contradicts what is kept: a fault of this program."""


@dataclass(frozen=True)
class Dialect:
    """Where the two kinds differ."""

    now: str
    """Seconds since the epoch by the database's clock, when the statement began."""
    among: str
    """After a column: one of the texts in the value that texts() makes."""
    texts: Callable[[Collection[str]], Any]
    skip_locked: str
    """After a SELECT whose rows are to be updated: without those that another transaction holds."""
    lock: str
    """Waits until no other transaction has locked the same text; until the end of this one."""


class Database(Protocol):
    """A database whose schema is up to date."""

    dialect: Dialect

    def write(self, operation: Operation[T], about: str = "") -> "asyncio.Future[T]":
        """Runs an operation in a transaction; the future is done once it is committed.

        Operations about the same run in the order of the calls. One that raises is rolled back alone. The future
        raises what its operation raised, Contradiction, or Unavailable if the database does not take it: then it may
        or may not have been kept, if the connection to it was lost. Cancelling the future does not undo the operation.

        Args:
            operation: what to do; it may run more than once, but is kept once.
            about: what changes() tells of it; empty means nothing to tell.
        """
        ...

    async def read(self, sql: str, *values: Any) -> Rows:
        """What a query gives, from what has been committed.

        Raises:
            Unavailable: the database does not answer.
        """
        ...

    def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        """What operations of any process were about, as they are committed; None: anything may have changed."""
        ...

    async def close(self) -> None:
        """Does what it has been asked, then closes."""
        ...
