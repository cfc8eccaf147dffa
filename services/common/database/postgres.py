"""PostgreSQL: lines for writing and reading, and notices of what has been written."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import asyncpg
import structlog

from services.common.database import dsn
from services.common.database.connection import Line
from services.common.database.dsn import Connection, Place
from services.common.database.migrations import MIGRATED, VERSION, VERSIONS, to_run
from services.common.database.notifications import Notices
from services.common.database.queries import Dialect, Into, Operation, Query, Rows, Steps
from services.common.errors import Unavailable
from services.common.wait import awaited

T = TypeVar("T")

DIALECT = Dialect(
    now="extract(epoch FROM statement_timestamp())::float8",
    among="= ANY(?::text[])",
    texts=list,
    skip_locked=" FOR UPDATE SKIP LOCKED",
    lock="SELECT pg_advisory_xact_lock(hashtextextended(?, 0))",
)

WRITERS, READERS = 6, 3
"""Connections of one process; one more is for notices."""

log = structlog.get_logger(__name__)

_MIGRATION_SECONDS = 60
"""How long another replica that migrates is waited for at the start."""

_WORDS = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "BIGINT",
    " REAL": " DOUBLE PRECISION",
    " BLOB": " BYTEA",
    "WITHOUT ROWID": "",
}
"""SQLite's words in migrations, longest first, as PostgreSQL says them."""


class PostgreSQL:
    """A schema of a PostgreSQL database."""

    dialect = DIALECT

    def __init__(self, place: Place) -> None:
        self._writers = [Line(place) for _ in range(WRITERS)]
        self._readers = [Line(place) for _ in range(READERS)]
        self._notices = Notices(place)

    def write(self, operation: Operation[T], about: str = "") -> "asyncio.Future[T]":
        line = self._writers[hash(about) % WRITERS] if about else min(self._writers, key=Line.waiting)
        future = line.ask(partial(_done, operation=operation))
        if about:
            future.add_done_callback(partial(self._tell, about))
        return future

    async def read(self, sql: str, *values: Any) -> Rows:
        return await min(self._readers, key=Line.waiting).ask(partial(_rows, query=Query(sql, values)))

    def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        return self._notices.changes()

    async def close(self) -> None:
        await asyncio.gather(*(line.close() for line in (*self._writers, *self._readers)))
        await self._notices.close()

    def _tell(self, about: str, future: "asyncio.Future[Any]") -> None:
        if future.cancelled() or not future.exception():
            self._notices.tell(about)


async def connected(url: str, schema: str, migrations: Sequence[str]) -> PostgreSQL:
    """The schema of a database that postgresql://user:password@host:port/name names.

    Raises:
        Unavailable: it does not answer in time.
        FailedPrecondition: NEWER_SCHEMA; or DATABASE, it does not take this user, or is not there.
        InvalidRequest: the URL cannot be read.
    """
    place = Place(url, schema)
    connection = await awaited("the database", partial(place.connect, patient=True))
    try:
        await _migrate(connection, place, migrations)
    except asyncpg.LockNotAvailableError as error:
        raise Unavailable(
            f"another process has been changing the tables at {place} for {_MIGRATION_SECONDS} s",
            remedy="wait until it has finished, or end it if it hangs",
        ) from error
    except dsn.FAILURES as error:
        raise dsn.failure(error, place.text) from error
    finally:
        connection.terminate()
    return PostgreSQL(place)


async def _migrate(connection: Connection, place: Place, migrations: Sequence[str]) -> None:
    """Brings the schema up to date, one process at a time; what a killed one had begun is not there."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_MIGRATION_SECONDS}s'")
        await connection.execute(_native(DIALECT.lock, ()), f"migrate {place.schema}")
        if not await connection.fetch("SELECT 1 FROM pg_namespace WHERE nspname = $1", place.schema):
            await connection.execute(f'CREATE SCHEMA "{place.schema}"')
        await connection.execute(_translated(VERSIONS))
        version = await connection.fetchval(_native(VERSION, ()), place.schema) or 0
        for statement in to_run(version, place.text, place.schema, migrations):
            await connection.execute(_translated(statement))
        if version < len(migrations):
            await connection.execute(_native(MIGRATED, ()), place.schema, len(migrations))


def _translated(statement: str) -> str:
    for word, other in _WORDS.items():
        statement = statement.replace(word, other)
    return statement


async def _done(connection: Connection, operation: Operation[T]) -> T:
    """Runs one operation; gives its result once that is committed."""
    steps = operation()
    query = next(steps)
    if query.alone:
        return await _through(connection, steps, query)
    async with connection.transaction():
        return await _through(connection, steps, query)


async def _through(connection: Connection, steps: Steps[T], query: Query) -> T:
    while True:
        rows = await _rows(connection, query)
        try:
            query = steps.send(rows)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the operation returns


async def _rows(connection: Connection, query: Query) -> Rows:
    sql, values, puts, _ = query
    arrays = [list(map(_clean, column)) for _, rows in puts for column in zip(*rows, strict=True)]
    return await connection.fetch(_native(sql, tuple(into for into, _ in puts)), *map(_clean, values), *arrays)  # type: ignore[return-value]  # a Record is a sequence


def _clean(value: Any) -> Any:
    """PostgreSQL knows no text with a zero character."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) and "\0" in value else value


@cache
def _native(sql: str, tables: tuple[Into, ...]) -> str:
    """One statement for a query and what it puts, with numbered values."""
    if tables:
        parts = [f"asked AS ({sql})", *(f"put{number} AS ({into.many})" for number, into in enumerate(tables))]
        sql = f"WITH {', '.join(parts)} SELECT * FROM asked"  # noqa: S608  # of constants
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{text}" for number, text in enumerate(rest, 1))
