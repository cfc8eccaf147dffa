"""Databases by their address."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from services.runtime.database import sqlite
from services.runtime.database.queries import Database


@asynccontextmanager
async def opened(address: str | Path, schema: str, migrations: Sequence[str]) -> AsyncIterator[Database]:
    """A database whose schema is up to date; closed when the block exits, after what was asked of it.

    Args:
        address: a path or sqlite:///path, whose file and folder are made if absent.
        schema: name under which the version of these tables is kept.
        migrations: SQL scripts in SQLite's words; see the module migrations.

    Raises:
        Unavailable: it cannot be opened or written.
        FailedPrecondition: NEWER_SCHEMA, a later version of this program has written it.
    """
    text = str(address)
    database = await sqlite.connected(Path(text.removeprefix("sqlite://")), schema, migrations)
    try:
        yield database
    finally:
        await database.close()
