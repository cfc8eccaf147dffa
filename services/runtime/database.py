"""SQLite for those who own state: a writer thread with group commit, a reader beside it, versioned schemas."""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from services.runtime.errors import FailedPrecondition, Unavailable

T = TypeVar("T")

_BUSY_SECONDS = 10.0
_GROUP = 256
"""Most operations in one commit."""
_OF_THE_FILE = frozenset({sqlite3.OperationalError, sqlite3.DatabaseError})
"""Errors that are no single operation's; those derived from them are."""


class Database:
    """A SQLite file in WAL mode with synchronous=FULL: what has been committed survives a power cut."""

    def __init__(self, writing: sqlite3.Connection, reading: sqlite3.Connection) -> None:
        self._writing = writing
        self._reading = reading
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="database-writer", daemon=True)
        self._writer.start()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="database-reader")

    def write(self, operation: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]":
        """Runs an operation in a transaction; the future is done once it is committed.

        Operations run in the order of the calls. One that raises is rolled back alone. The future raises what its
        operation raised, or Unavailable if the file does not take it; cancelling it does not undo the operation.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(_closed())
        else:
            self._queue.put(_Write(operation, future))
        return future

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Runs an operation on a connection that sees what has been committed.

        Raises:
            Unavailable: the file cannot be read.
        """
        if self._closed:
            raise _closed()
        try:
            return await self._loop.run_in_executor(self._reader, operation, self._reading)
        except sqlite3.Error as error:
            raise _unavailable(error) from error

    async def close(self) -> None:
        """Does what it has been asked, then closes the file."""
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._reader.shutdown)
        self._writing.close()
        self._reading.close()

    def _write_all(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            with contextlib.suppress(queue.Empty):
                while len(group) < _GROUP:
                    following = self._queue.get_nowait()
                    if following is None:
                        self._queue.put(None)
                        break
                    group.append(following)
            outcomes = _committed(self._writing, group)
            with contextlib.suppress(RuntimeError):  # the loop may be closed when the process ends
                self._loop.call_soon_threadsafe(_deliver, group, outcomes)


@asynccontextmanager
async def opened(path: Path, schema: str, migrations: Sequence[str]) -> AsyncIterator[Database]:
    """A database whose schema is up to date; closed when the block exits, after what was asked of it.

    Args:
        path: the file; it and its folder are made if absent.
        schema: name under which the version of these tables is kept.
        migrations: SQL scripts; the n-th leads from version n to n + 1. Scripts once released never change.

    Raises:
        Unavailable: the file cannot be opened or written.
        FailedPrecondition: NEWER_SCHEMA, a later version of this program has written it.
    """
    database = Database(*await asyncio.to_thread(_prepared, path, schema, migrations))
    try:
        yield database
    finally:
        await database.close()


class _Write:
    __slots__ = ("future", "operation")

    def __init__(self, operation: Callable[[sqlite3.Connection], Any], future: "asyncio.Future[Any]") -> None:
        self.operation = operation
        self.future = future


def _committed(connection: sqlite3.Connection, group: Sequence[_Write]) -> list[Any]:
    """Runs a group in one transaction; returns what each gave or raised."""
    outcomes: list[Any] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        for write in group:
            connection.execute("SAVEPOINT one")
            try:
                outcomes.append(write.operation(connection))
            except Exception as error:
                if type(error) in _OF_THE_FILE:
                    raise
                connection.execute("ROLLBACK TO one")
                outcomes.append(error)
            connection.execute("RELEASE one")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        with contextlib.suppress(sqlite3.Error):  # where the error has ended the transaction, there is none
            connection.execute("ROLLBACK")
        return [_unavailable(error)] * len(group)
    return outcomes


def _deliver(group: Sequence[_Write], outcomes: Sequence[Any]) -> None:
    for write, outcome in zip(group, outcomes, strict=True):
        if write.future.done():
            continue
        if isinstance(outcome, Exception):
            write.future.set_exception(outcome)
        else:
            write.future.set_result(outcome)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _prepared(path: Path, schema: str, migrations: Sequence[str]) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Connections to write and to read, the schema up to date; only this user may read the file."""
    with contextlib.ExitStack() as opening:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            writing, reading = [opening.enter_context(contextlib.closing(_open(path))) for _ in range(2)]
            _migrate(writing, path, schema, migrations)
        except (OSError, sqlite3.Error) as error:
            raise _unavailable(error) from error
        opening.pop_all()
    return writing, reading


def _migrate(connection: sqlite3.Connection, path: Path, schema: str, migrations: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE IF NOT EXISTS schemas (name TEXT PRIMARY KEY, version INTEGER NOT NULL)")
    row = connection.execute("SELECT version FROM schemas WHERE name = ?", (schema,)).fetchone()
    version = row[0] if row else 0
    if version > len(migrations):
        raise FailedPrecondition(
            f"{path} has version {version} of schema {schema}; this program knows {len(migrations)}",
            reason="NEWER_SCHEMA",
            remedy="run the newer program, or restore a copy made before it",
        )
    for script in migrations[version:]:
        for statement in script.split(";"):
            connection.execute(statement)
    connection.execute("INSERT OR REPLACE INTO schemas VALUES (?, ?)", (schema, len(migrations)))
    connection.execute("COMMIT")


def _closed() -> Unavailable:
    return Unavailable("the database is closed", remedy="ask another process, or this one when it has started again")


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(
        f"the database does not take what it is given: {error}",
        remedy="check that its file may be written and that the disk has room",
    )
