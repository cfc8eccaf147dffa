"""The journals of the campaign, and how each is taken away from its users for a moment."""

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
    """Where runs are kept."""

    setting: str
    """What ORCHESTRATOR_JOURNAL says."""
    connected: bool
    """It is reached over connections, which can be cut."""

    async def lock(self, seconds: float) -> None:
        """Keeps everybody from writing for so long."""

    async def sever(self) -> None:
        """Cuts all connections to it."""


class Sqlite:
    """A file."""

    connected = False

    def __init__(self, folder: Path) -> None:
        self.setting = str(folder / "journal.sqlite")

    async def lock(self, seconds: float) -> None:
        await asyncio.to_thread(self._lock, seconds)

    async def sever(self) -> None:
        """There is nothing to cut."""

    def _lock(self, seconds: float) -> None:
        with closing(sqlite3.connect(self.setting, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")


class Postgresql:
    """A database of a server."""

    connected = True

    def __init__(self, url: str) -> None:
        self.setting = url

    async def lock(self, seconds: float) -> None:
        await self._told(
            f"BEGIN; LOCK TABLE runs.runs, runs.events IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({seconds}); ROLLBACK"
        )

    async def sever(self) -> None:
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        await self._told(f"SELECT pg_terminate_backend(pid) {others}")

    async def _told(self, commands: str) -> None:
        connection = await asyncpg.connect(self.setting)
        try:
            await connection.execute(commands)
        finally:
            await connection.close()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Store]:
    """A journal in a file of the folder."""
    yield Sqlite(folder)


@asynccontextmanager
async def postgresql(folder: Path) -> AsyncIterator[Store]:  # the server has a folder of its own
    """A journal in a database of a server that is started for it."""
    with postgres.standing() as server:
        async with postgres.fresh(server) as url:
            yield Postgresql(url)


BACKENDS: dict[str, Callable[[Path], AbstractAsyncContextManager[Store]]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
}
