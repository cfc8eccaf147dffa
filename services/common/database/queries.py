"""Interface of a database, and queries for both kinds: `?` for values, and the differences in Dialect."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Rows: TypeAlias = Sequence[Sequence[Any]]


class InsertInto:
    """Insertion of rows into a table.

    Args:
        table: its name.
        columns: PostgreSQL's types of the columns, by name.
        conflict: the ON CONFLICT clause.
        computed: SQL expressions for columns, by name, in which {} stands for the value; by default the value itself.
    """

    def __init__(
        self,
        table: str,
        columns: Mapping[str, str],
        conflict: str = "",
        computed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        names = ", ".join(columns)
        expressions = {name: computed.get(name, "{}") for name in columns}
        values, given = (
            ", ".join(expression.format(value or name) for name, expression in expressions.items())
            for value in ("?", "")
        )
        into = f"INSERT INTO {table} ({names})"
        self.one = f"{into} VALUES ({values}) {conflict}"
        """Statement for one row, with a value per column."""
        arrays = ", ".join(f"?::{type_}[]" for type_ in columns.values())
        rows = f"SELECT {given} FROM unnest({arrays}) AS given ({names}) WHERE EXISTS (SELECT FROM condition)"  # noqa: S608  # constants
        self.many = f"{into} {rows} {conflict}"
        """Part of a PostgreSQL statement, with an array of values per column, after a part named `condition`."""


class Query(NamedTuple):
    """One statement, and rows to insert if it returns any row."""

    sql: str
    values: Sequence[Any] = ()
    inserts: Sequence[tuple[InsertInto, Sequence[Sequence[Any]]]] = ()
    alone: bool = False
    """No other query of the operation writes, so that it needs no explicit transaction."""


Steps: TypeAlias = Generator[Query, Rows, T]
Operation: TypeAlias = Callable[[], Steps[T]]


class ConstraintViolation(Exception):
    """A write violates a constraint of the schema: a bug of this program."""


@dataclass(frozen=True)
class Dialect:
    """Differences between the two kinds of database."""

    now: str
    """Seconds since the epoch by the database's clock, when the statement started."""
    among: str
    """After a column: the condition that it is one of the texts in a value made by texts()."""
    texts: Callable[[Collection[str]], Any]
    skip_locked: str
    """After a SELECT of rows to update: skips rows locked by other transactions."""
    lock: str
    """Waits until no other transaction holds the lock named by a text; holds it until the end of this one."""


class Database(Protocol):
    """A database with an up-to-date schema."""

    dialect: Dialect

    def write(self, operation: Operation[T], topic: str = "") -> "asyncio.Future[T]":
        """Runs an operation in a transaction; the future is done once that is committed.

        Operations with the same topic run in the order of the calls. An operation that raises is rolled back alone. The
        future raises the operation's exception, ConstraintViolation, or Unavailable if the database fails; if the
        connection was lost, the operation may have been committed. Cancelling the future does not undo the operation.

        Args:
            operation: may run more than once, but is committed once.
            topic: reported by changes(); empty: none.
        """
        ...

    async def read(self, sql: str, *values: Any) -> Rows:
        """The rows of a query on committed data.

        Raises:
            Unavailable: the database does not answer.
        """
        ...

    def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        """Topics of operations that any process has committed, as they happen; None stands for any topic."""
        ...

    async def close(self) -> None:
        """Finishes pending operations, then closes."""
        ...
