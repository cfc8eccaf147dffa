"""Databases for the journal, which can be locked and disconnected from their users."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Protocol

import asyncpg

from tests.support import postgres


class Store(Protocol):
    """A database for the journal."""

    setting: str
    """Value of ORCHESTRATOR_JOURNAL."""
    has_connections: bool
    """Whether clients use connections that can be cut."""

    async def lock(self, seconds: float) -> None:
        """Blocks all writers for this time."""

    async def disconnect(self) -> None:
        """Cuts all connections of clients."""


class Sqlite:
    """A journal in an SQLite file."""

    has_connections = False

    def __init__(self, folder: Path) -> None:
        self.setting = str(folder / "journal.sqlite")

    async def lock(self, seconds: float) -> None:
        await asyncio.to_thread(self._lock, seconds)

    async def disconnect(self) -> None:
        """Does nothing: SQLite has no connections."""

    def _lock(self, seconds: float) -> None:
        with closing(sqlite3.connect(self.setting, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")


class Postgresql:
    """A journal in a PostgreSQL database."""

    has_connections = True

    def __init__(self, url: str) -> None:
        self.setting = url

    async def lock(self, seconds: float) -> None:
        await self._execute(
            f"BEGIN; LOCK TABLE runs.runs, runs.events IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({seconds}); ROLLBACK"
        )

    async def disconnect(self) -> None:
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        await self._execute(f"SELECT pg_terminate_backend(pid) {others}")

    async def _execute(self, commands: str) -> None:
        connection = await asyncpg.connect(self.setting)
        try:
            await connection.execute(commands)
        finally:
            await connection.close()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Store]:
    """A journal in a file in the folder."""
    yield Sqlite(folder)


@asynccontextmanager
async def postgresql(folder: Path) -> AsyncIterator[Store]:  # the server has its own folder
    """A journal in a database of a temporary server."""
    with postgres.running_postgres() as server:
        async with postgres.new_database(server) as url:
            yield Postgresql(url)


BACKENDS: dict[str, Callable[[Path], AbstractAsyncContextManager[Store]]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
}
