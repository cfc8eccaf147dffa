"""Databases by their address."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from services.common.database import sqlite
from services.common.database.queries import Database
from services.common.errors import FailedPrecondition, InvalidRequest

_HOST_AND_PORT = re.compile(r"[\w.-]+:\d+")


@asynccontextmanager
async def opened(address: str | Path, schema: str, migrations: Sequence[str]) -> AsyncIterator[Database]:
    """A database whose schema is up to date; closed when the block exits, after what was asked of it.

    Args:
        address: a path or sqlite:///path, whose file and folder are made if absent; or
            postgresql://user:password@host:port/name, where the tables are in a schema of that name.
        schema: name under which the version of these tables is kept.
        migrations: SQL scripts in SQLite's words; see the module migrations.

    Raises:
        Unavailable: it cannot be opened or written.
        FailedPrecondition: NEWER_SCHEMA, a later version of this program has written it; DATABASE, PostgreSQL does
            not take this user, or is not installed here.
        InvalidRequest: the address is of no known kind.
    """
    database = await _connected(str(address), schema, migrations)
    try:
        yield database
    finally:
        await database.close()


async def _connected(address: str, schema: str, migrations: Sequence[str]) -> Database:
    kind, separator, place = address.partition("://")
    if not separator and _HOST_AND_PORT.fullmatch(address):
        raise _unknown(f"{address} is no file's path")
    if not separator:
        return await sqlite.connected(Path(address), schema, migrations)
    if kind == "sqlite":
        return await sqlite.connected(Path(place), schema, migrations)
    if kind not in {"postgresql", "postgres"}:
        raise _unknown(f"there is no kind of database called {kind}")
    try:
        from services.common.database import postgres  # noqa: PLC0415  # only clusters have its driver
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            "the driver of PostgreSQL is not installed", reason="DATABASE", remedy="pip install 'hugginggpt[postgres]'"
        ) from error
    return await postgres.connected(address, schema, migrations)


def _unknown(why: str) -> InvalidRequest:
    return InvalidRequest(why, remedy="give a path, sqlite:///path or postgresql://user:password@host:5432/name")
