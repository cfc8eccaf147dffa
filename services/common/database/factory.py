"""Opening a database by its address."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from services.common.database import sqlite
from services.common.database.queries import Database
from services.common.errors import FailedPrecondition, InvalidRequest

DEFAULT_CONNECTIONS = 10
"""Of one process to PostgreSQL: one for notifications, two thirds of the others to write, the rest to read."""

_HOST_AND_PORT = re.compile(r"[\w.-]+:\d+")


@asynccontextmanager
async def open_database(
    address: str | Path, schema: str, migrations: Sequence[str], connections: int = DEFAULT_CONNECTIONS
) -> AsyncIterator[Database]:
    """Opens a database and migrates its schema; when the block exits, finishes pending operations and closes it.

    Args:
        address: a path or sqlite:///path, whose file and folder are created if absent; or
            postgresql://user:password@host:port/name, whose tables are in a PostgreSQL schema named `schema`.
        schema: name under which the version of these tables is stored.
        migrations: SQL scripts in SQLite's syntax; see the module `migrations`.
        connections: of this process to PostgreSQL, at least three.

    Raises:
        Unavailable: it cannot be opened or written.
        FailedPrecondition: NEWER_SCHEMA, a later release has migrated it; DATABASE, PostgreSQL denies access, or its
            driver is not installed.
        InvalidRequest: the address is not supported.
    """
    database = await _open(str(address), schema, migrations, connections)
    try:
        yield database
    finally:
        await database.close()


async def _open(address: str, schema: str, migrations: Sequence[str], connections: int) -> Database:
    kind, separator, path = address.partition("://")
    if not separator and _HOST_AND_PORT.fullmatch(address):
        raise _unsupported(f"{address} is not the path of a file")
    if not separator:
        return await sqlite.open_sqlite(Path(address), schema, migrations)
    if kind == "sqlite":
        return await sqlite.open_sqlite(Path(path), schema, migrations)
    if kind not in {"postgresql", "postgres"}:
        raise _unsupported(f"{kind} is not a supported database")
    try:
        from services.common.database import postgres  # noqa: PLC0415  # its driver is an optional dependency
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            "the PostgreSQL driver is not installed", reason="DATABASE", remedy="pip install 'hugginggpt[postgres]'"
        ) from error
    return await postgres.open_postgres(address, schema, migrations, connections)


def _unsupported(problem: str) -> InvalidRequest:
    return InvalidRequest(problem, remedy="give a path, sqlite:///path or postgresql://user:password@host:5432/name")
