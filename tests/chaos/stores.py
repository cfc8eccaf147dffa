"""The journals of the campaign, and how each is taken away from its users for a moment."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Protocol


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


class SqliteStore:
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


@contextmanager
def sqlite(folder: Path) -> Iterator[Store]:
    """A journal in a file of the folder."""
    yield SqliteStore(folder)


BACKENDS: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {"sqlite": sqlite}
