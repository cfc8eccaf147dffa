"""SQLite: a writer thread with group commit, and a reader thread."""

import asyncio
import contextlib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import structlog

from services.common.database.migrations import CREATE_VERSIONS, SELECT_VERSION, SET_VERSION, pending_statements
from services.common.database.queries import ConstraintViolation, Dialect, Operation, Rows
from services.common.errors import Unavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

DIALECT = Dialect(
    now="((julianday('now') - 2440587.5) * 86400.0)",  # to the millisecond
    among="IN (SELECT value FROM json_each(?))",
    texts=lambda texts: json.dumps(list(texts)),
    skip_locked="",
    lock="SELECT ?",  # there is one writer at a time
)

CHANGES_SECONDS, BUSY_CHANGES_SECONDS = 0.05, 0.2
"""Interval at which writes are noticed, and the interval after one was: in a busy process each would show its own."""

_BUSY_SECONDS = 10.0
_GROUP = 256
"""Largest number of operations in one commit."""
_DATABASE_ERRORS = frozenset({sqlite3.OperationalError, sqlite3.DatabaseError})
"""Errors of the database as a whole; their subclasses are errors of a single operation."""


class SQLite:
    """A file in WAL mode with synchronous=FULL, so that commits survive a power failure."""

    dialect = DIALECT

    def __init__(self, write_connection: sqlite3.Connection, read_connection: sqlite3.Connection) -> None:
        self._write_connection = write_connection
        self._read_connection = read_connection
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="database-writer", daemon=True)
        self._writer.start()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="database-reader")

    def write(self, operation: Operation[T], topic: str = "") -> "asyncio.Future[T]":  # noqa: ARG002  # all operations run in order
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(_closed())
        else:
            self._queue.put(_Write(operation, future))
        return future

    async def read(self, sql: str, *values: Any) -> Rows:
        if self._closed:
            raise _closed()
        try:
            return await self._loop.run_in_executor(self._reader, _rows, self._read_connection, sql, values)
        except sqlite3.Error as error:
            raise _unavailable(error) from error

    async def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        seen = None
        while not self._closed:
            pause = CHANGES_SECONDS
            with contextlib.suppress(Unavailable):
                ((version,),) = await self.read("PRAGMA data_version")
                if version != seen:
                    seen, pause = version, BUSY_CHANGES_SECONDS
                    yield None
            await asyncio.sleep(pause)

    async def close(self) -> None:
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._reader.shutdown)
        self._write_connection.close()
        self._read_connection.close()

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
            outcomes = _commit(self._write_connection, group)
            with contextlib.suppress(RuntimeError):  # the loop may have been closed as the process ends
                self._loop.call_soon_threadsafe(_deliver, group, outcomes)


async def open_sqlite(path: Path, schema: str, migrations: Sequence[str]) -> SQLite:
    """Opens the database in a file and migrates its schema.

    Raises:
        Unavailable: the file cannot be opened or written.
        FailedPrecondition: NEWER_SCHEMA.
    """
    return SQLite(*await asyncio.to_thread(_connect, path, schema, migrations))


class _Write:
    __slots__ = ("future", "operation")

    def __init__(self, operation: Operation[Any], future: "asyncio.Future[Any]") -> None:
        self.operation = operation
        self.future = future


def _commit(connection: sqlite3.Connection, group: Sequence[_Write]) -> list[Any]:
    """Runs a group in one transaction; returns the result or exception of each operation."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        outcomes = _run_all(connection, group) or [_run_alone(connection, write.operation) for write in group]
        connection.execute("COMMIT")
    except Exception as error:
        if not isinstance(error, sqlite3.Error):  # the thread continues, since later operations wait for it
            log.exception("database transaction failed unexpectedly")
        with contextlib.suppress(sqlite3.Error):  # the error may have ended the transaction
            connection.execute("ROLLBACK")
        return [_unavailable(error)] * len(group)
    return outcomes


def _run_all(connection: sqlite3.Connection, group: Sequence[_Write]) -> list[Any]:
    """Runs a group and returns the results; if one raises, which is rare, undoes all and returns an empty list."""
    connection.execute("SAVEPOINT every")
    try:
        outcomes = [_run(connection, write.operation) for write in group]
    except Exception as error:
        if type(error) in _DATABASE_ERRORS:
            raise
        connection.execute("ROLLBACK TO every")
        outcomes = []
    connection.execute("RELEASE every")
    return outcomes


def _run_alone(connection: sqlite3.Connection, operation: Operation[Any]) -> Any:
    """Runs one operation; returns its result, or the exception after which it was undone."""
    connection.execute("SAVEPOINT one")
    try:
        outcome = _run(connection, operation)
    except Exception as error:
        if type(error) in _DATABASE_ERRORS:
            raise
        connection.execute("ROLLBACK TO one")
        outcome = _operation_error(error)
    connection.execute("RELEASE one")
    return outcome


def _run(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    """Runs one operation; returns its result."""
    steps = operation()
    rows: Rows | None = None
    while True:
        try:
            sql, values, inserts, _ = steps.send(rows)  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the operation returns
        rows = connection.execute(sql, values).fetchall()
        if rows:
            for into, inserted in inserts:
                connection.executemany(into.one, inserted)


def _operation_error(error: Exception) -> Exception:
    return ConstraintViolation(str(error)) if isinstance(error, sqlite3.IntegrityError) else error


def _deliver(group: Sequence[_Write], outcomes: Sequence[Any]) -> None:
    for write, outcome in zip(group, outcomes, strict=True):
        if write.future.done():
            continue
        if isinstance(outcome, Exception):
            write.future.set_exception(outcome)
        else:
            write.future.set_result(outcome)


def _rows(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> Rows:
    return connection.execute(sql, values).fetchall()


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    _enable_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Enables WAL mode; retries while another process does so, for which SQLite itself does not wait."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _connect(path: Path, schema: str, migrations: Sequence[str]) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Opens connections to write and to read; the file is readable only by this user."""
    with contextlib.ExitStack() as opening:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            writer, reader = [opening.enter_context(contextlib.closing(_open(path))) for _ in range(2)]
            _migrate(writer, path, schema, migrations)
        except (OSError, sqlite3.Error) as error:
            raise _unavailable(error) from error
        opening.pop_all()
    return writer, reader


def _migrate(connection: sqlite3.Connection, path: Path, schema: str, migrations: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(CREATE_VERSIONS)
    row = connection.execute(SELECT_VERSION, (schema,)).fetchone()
    version = row[0] if row else 0
    for statement in pending_statements(version, str(path), schema, migrations):
        connection.execute(statement)
    if version < len(migrations):
        connection.execute(SET_VERSION, (schema, len(migrations)))
    connection.execute("COMMIT")


def _closed() -> Unavailable:
    return Unavailable("the database is closed", remedy="send the request again once the process has restarted")


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(
        f"the database cannot be written: {error}",
        remedy="check that its file is writable and that the disk has space",
    )
