"""PostgreSQL: connections for writing and reading, and notifications of writes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import asyncpg
import structlog

from services.common.database.migrations import CREATE_VERSIONS, SELECT_VERSION, SET_VERSION, pending_statements
from services.common.database.postgres_connection import (
    ERRORS,
    Connection,
    ConnectionWorker,
    PostgresAddress,
    translate_error,
)
from services.common.database.postgres_notifications import PostgresNotifier
from services.common.database.queries import Dialect, InsertInto, Operation, Query, Rows, Steps
from services.common.errors import Unavailable
from services.common.supervision import until_available

T = TypeVar("T")

DIALECT = Dialect(
    now="extract(epoch FROM statement_timestamp())::float8",
    among="= ANY(?::text[])",
    texts=list,
    skip_locked=" FOR UPDATE SKIP LOCKED",
    lock="SELECT pg_advisory_xact_lock(hashtextextended(?, 0))",
)

log = structlog.get_logger(__name__)

_MIGRATION_SECONDS = 60
"""How long a starting process waits for another one that migrates."""

_TRANSLATIONS = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "BIGINT",
    " REAL": " DOUBLE PRECISION",
    " BLOB": " BYTEA",
    "WITHOUT ROWID": "",
}
"""SQLite's syntax in migrations, longest first, and PostgreSQL's."""


class PostgreSQL:
    """A schema in a PostgreSQL database.

    Args:
        address: of the schema.
        connections: in all, at least three: one for notifications, two thirds of the others to write, the rest to read.
    """

    dialect = DIALECT

    def __init__(self, address: PostgresAddress, connections: int) -> None:
        writers = max(1, (connections - 1) * 2 // 3)
        self._writers = [ConnectionWorker(address) for _ in range(writers)]
        self._readers = [ConnectionWorker(address) for _ in range(connections - 1 - writers)]
        self._notifier = PostgresNotifier(address)

    def write(self, operation: Operation[T], topic: str = "") -> "asyncio.Future[T]":
        if topic:
            writer = self._writers[hash(topic) % len(self._writers)]
        else:
            writer = min(self._writers, key=ConnectionWorker.queue_length)
        future = writer.submit(partial(_run, operation=operation))
        if topic:
            future.add_done_callback(partial(self._notify, topic))
        return future

    async def read(self, sql: str, *values: Any) -> Rows:
        return await min(self._readers, key=ConnectionWorker.queue_length).submit(
            partial(_rows, query=Query(sql, values))
        )

    def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        return self._notifier.changes()

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for worker in (*self._writers, *self._readers)))
        await self._notifier.close()

    def _notify(self, topic: str, future: "asyncio.Future[Any]") -> None:
        if future.cancelled() or not future.exception():
            self._notifier.notify(topic)


async def open_postgres(url: str, schema: str, migrations: Sequence[str], connections: int) -> PostgreSQL:
    """Connects to postgresql://user:password@host:port/name and migrates a schema, which it creates if absent.

    Raises:
        Unavailable: the server does not answer in time.
        FailedPrecondition: NEWER_SCHEMA; or DATABASE, the server denies access, or the database does not exist.
        InvalidRequest: the URL is malformed.
    """
    address = PostgresAddress(url, schema)
    connection = await until_available("the database", partial(address.connect, statement_timeout=False))
    try:
        await _migrate(connection, address, migrations)
    except asyncpg.LockNotAvailableError as error:
        raise Unavailable(
            f"another process has been migrating the tables at {address.text} for {_MIGRATION_SECONDS} s",
            remedy="wait until it has finished, or stop it if it hangs",
        ) from error
    except ERRORS as error:
        raise translate_error(error, address.text) from error
    finally:
        connection.terminate()
    return PostgreSQL(address, connections)


async def _migrate(connection: Connection, address: PostgresAddress, migrations: Sequence[str]) -> None:
    """Migrates the schema in one transaction, which only one process at a time can do."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_MIGRATION_SECONDS}s'")
        await connection.execute(_native(DIALECT.lock, ()), f"migrate {address.schema}")
        if not await connection.fetch("SELECT 1 FROM pg_namespace WHERE nspname = $1", address.schema):
            await connection.execute(f'CREATE SCHEMA "{address.schema}"')
        await connection.execute(_translated(CREATE_VERSIONS))
        version = await connection.fetchval(_native(SELECT_VERSION, ()), address.schema) or 0
        for statement in pending_statements(version, address.text, address.schema, migrations):
            await connection.execute(_translated(statement))
        if version < len(migrations):
            await connection.execute(_native(SET_VERSION, ()), address.schema, len(migrations))


def _translated(statement: str) -> str:
    for sqlite, postgres in _TRANSLATIONS.items():
        statement = statement.replace(sqlite, postgres)
    return statement


async def _run(connection: Connection, operation: Operation[T]) -> T:
    """Runs and commits one operation; returns its result."""
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
    sql, values, inserts, _ = query
    arrays = [list(map(_clean, column)) for _, rows in inserts for column in zip(*rows, strict=True)]
    return await connection.fetch(_native(sql, tuple(into for into, _ in inserts)), *map(_clean, values), *arrays)  # type: ignore[return-value]  # a Record is a sequence


def _clean(value: Any) -> Any:
    """Replaces NUL, which PostgreSQL's texts cannot contain."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) and "\0" in value else value


@cache
def _native(sql: str, tables: tuple[InsertInto, ...]) -> str:
    """One statement for a query and its inserts, with numbered parameters."""
    if tables:
        parts = [f"condition AS ({sql})", *(f"insert{number} AS ({into.many})" for number, into in enumerate(tables))]
        sql = f"WITH {', '.join(parts)} SELECT * FROM condition"  # noqa: S608  # of constants
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{text}" for number, text in enumerate(rest, 1))
