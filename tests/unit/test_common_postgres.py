"""Behaviour specific to PostgreSQL: connection loss, timeouts, permissions, notifications."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from services.common.database import Operation, Query, Rows, Steps, open_database
from services.common.database.postgres_connection import Connection, ConnectionWorker, PostgresAddress
from services.common.database.postgres_notifications import PostgresNotifier
from services.common.errors import FailedPrecondition, InvalidRequest, Unavailable
from tests.support.postgres import PASSWORD, emptied_database, running_pgbouncer

FIRST = "CREATE TABLE notes (id TEXT PRIMARY KEY)"


def insert_note(name: str) -> Operation[Rows]:
    def operation() -> Steps[Rows]:
        return (yield Query("INSERT INTO notes (id) VALUES (?)", (name,), alone=True))

    return operation


def listed() -> str:
    return "SELECT id FROM notes ORDER BY id"


@pytest.fixture
async def postgres_database(postgres: str) -> str:
    """URL of an empty database."""
    return await emptied_database(postgres)


class Proxy:
    """TCP proxy to a server that can be disconnected, reconnected, or stop forwarding."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._pumps: set[asyncio.Task[None]] = set()
        self._streams: set[asyncio.StreamWriter] = set()
        self.flows = asyncio.Event()
        self.flows.set()
        self._port = 0

    async def connect(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def disconnect(self) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for stream in self._streams:
            stream.transport.abort()
        self._streams.clear()

    @property
    def url(self) -> str:
        user = self._url.netloc.rpartition("@")[0]
        return urlunsplit(self._url._replace(netloc=f"{user}@127.0.0.1:{self._port}"))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._url.hostname, self._url.port)
        self._streams |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await source.read(65536):
                await self.flows.wait()
                sink.write(content)
                await sink.drain()
        sink.close()


@asynccontextmanager
async def proxied(postgres_database: str) -> AsyncIterator[Proxy]:
    cable = Proxy(postgres_database)
    await cable.connect()
    try:
        yield cable
    finally:
        await cable.disconnect()


async def error_text(address: str, kind: type[Exception]) -> str:
    """Message and remedy of a database that cannot be opened; asserts that they do not contain the password."""
    with pytest.raises(kind) as refused:
        async with open_database(address, "notes", [FIRST]):
            pass
    text = f"{refused.value} {getattr(refused.value, 'remedy', '')}"
    assert PASSWORD not in text
    assert "secret" not in text
    return text


async def test_absent_server_is_awaited_then_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.supervision.STARTUP_SECONDS", 0.3)
    started = time.monotonic()
    async with asyncio.timeout(30):
        message = await error_text("postgresql://me:secret@127.0.0.1:9/notes", Unavailable)
    assert time.monotonic() - started >= 0.3
    assert "127.0.0.1:9/notes" in message
    assert "check that it runs" in message


async def test_wrong_password_fails_at_once(postgres_database: str) -> None:
    message = await error_text(postgres_database.replace(PASSWORD, "secret"), FailedPrecondition)
    assert 'password authentication failed for user "postgres"' in message
    assert "check user, password" in message


async def test_unknown_database_fails_at_once(postgres_database: str) -> None:
    message = await error_text(urlunsplit(urlsplit(postgres_database)._replace(path="/nowhere")), FailedPrecondition)
    assert 'database "nowhere" does not exist' in message


@pytest.mark.parametrize("address", ["postgresql://me:secret@here:port/notes", "postgresql://me:secret@[::1/notes"])
async def test_malformed_url_is_reported_without_the_url(address: str) -> None:
    assert "%XX" in await error_text(address, InvalidRequest)


async def test_user_without_create_permission_is_rejected(postgres_database: str) -> None:
    admin = await asyncpg.connect(postgres_database)
    await admin.execute("CREATE ROLE reader LOGIN PASSWORD 'secret'")
    try:
        message = await error_text(
            postgres_database.replace(f"postgres:{PASSWORD}", "reader:secret"), FailedPrecondition
        )
        assert "permission denied" in message
    finally:
        await admin.execute("DROP ROLE reader")
        await admin.close()


async def test_slow_migration_of_another_process_is_reported(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.common.database.postgres._MIGRATION_SECONDS", 0.2)
    other = await asyncpg.connect(postgres_database)
    await other.fetch("SELECT pg_advisory_lock(hashtextextended('migrate notes', 0))")
    assert "another process" in await error_text(postgres_database, Unavailable)
    await other.close()


async def test_tables_are_in_their_own_schema(postgres_database: str) -> None:
    async with (
        open_database(postgres_database, "notes", [FIRST]) as notes,
        open_database(postgres_database, "others", [FIRST]) as others,
    ):
        await notes.write(insert_note("a"))
        assert await others.read(listed()) == []
        tables = await notes.read("SELECT schemaname FROM pg_tables WHERE tablename = 'notes' ORDER BY schemaname")
        assert [row[0] for row in tables] == ["notes", "others"]


async def test_lost_server_is_reported_quickly_and_reconnected(postgres_database: str) -> None:
    async with (
        asyncio.timeout(20),
        proxied(postgres_database) as cable,
        open_database(cable.url, "notes", [FIRST]) as database,
        open_database(postgres_database, "notes", [FIRST]) as other,
        aclosing(database.changes()) as changes,
    ):
        await database.write(insert_note("a"), "a")
        assert await anext(changes) is None
        await cable.disconnect()
        for number in range(10):  # all within the timeout of this test: none of them waits for COMMAND_SECONDS
            with pytest.raises(Unavailable, match="does not answer"):
                await database.write(insert_note("lost"), str(number))
        with pytest.raises(Unavailable, match="does not answer"):
            await database.read(listed())
        await cable.connect()
        await database.write(insert_note("b"), "a")
        assert [row[0] for row in await database.read(listed())] == ["a", "b"]
        number = 0
        while not (change := await anext(changes)) or "theirs" not in change:
            number += 1
            await other.write(insert_note(f"c{number}"), "theirs")


async def test_write_to_a_silent_server_times_out(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.database.postgres_connection.COMMAND_SECONDS", 0.3)
    async with (
        asyncio.timeout(20),
        proxied(postgres_database) as cable,
        open_database(cable.url, "notes", [FIRST]) as database,
    ):
        await database.write(insert_note("a"), "a")
        cable.flows.clear()
        with pytest.raises(Unavailable, match="does not answer"):
            await database.write(insert_note("b"), "a")
        cable.flows.set()
        await database.write(insert_note("c"), "a")
        assert {"a", "c"} <= {row[0] for row in await database.read(listed())}


async def test_locks_of_a_frozen_process_are_released(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.database.postgres_connection.IDLE_SECONDS", 0.3)

    def freezing() -> Steps[None]:
        yield Query("INSERT INTO notes (id) VALUES ('a')")
        time.sleep(1)  # blocks the whole process
        yield Query("INSERT INTO notes (id) VALUES ('b')")

    async with open_database(postgres_database, "notes", [FIRST]) as database:
        with pytest.raises(Unavailable, match="does not answer"):
            await database.write(freezing)
        await database.write(insert_note("a"))
        assert [tuple(row) for row in await database.read(listed())] == [("a",)]


async def test_connections_closed_by_the_server_are_reopened(postgres_database: str) -> None:
    async with (
        open_database(postgres_database, "notes", [FIRST]) as database,
        open_database(postgres_database, "notes", [FIRST]) as other,
    ):
        await database.write(insert_note("a"), "a")
        end_all = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid != "
        )
        await other.read(end_all + "pg_backend_pid()")
        async with asyncio.timeout(10):
            while True:
                with suppress(Unavailable):
                    await database.write(insert_note("b"), "a")
                    break
        assert [row[0] for row in await database.read(listed())] == ["a", "b"]


async def until_changed(changes: AsyncGenerator[frozenset[str] | None], topic: str) -> None:
    """Waits for a notification of a topic; None means possible changes of any topic."""
    while topic not in (await anext(changes) or ()):
        pass


async def test_process_opens_no_more_connections_than_set(postgres_database: str) -> None:
    async with (
        asyncio.timeout(30),
        open_database(postgres_database, "notes", [FIRST], connections=4) as database,
        aclosing(database.changes()) as changes,
    ):
        for _ in range(2):  # it listens by then
            assert await anext(changes) is None
        await asyncio.gather(*(database.write(insert_note(str(n)), str(n)) for n in range(20)))
        await asyncio.gather(*(database.read(listed()) for _ in range(20)))
        counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = "
        assert [row[0] for row in await database.read(f"{counted} 'hugginggpt'")] == [4]


@pytest.mark.needs("pgbouncer")
async def test_writes_and_notifications_pass_pgbouncer_in_session_mode(postgres_database: str) -> None:
    with running_pgbouncer(postgres_database) as pooled:
        async with (
            asyncio.timeout(30),
            open_database(pooled, "notes", [FIRST], connections=3) as database,
            open_database(pooled, "notes", [FIRST], connections=3) as other,
            aclosing(other.changes()) as changes,
        ):
            for _ in range(2):  # it listens by then
                assert await anext(changes) is None
            await database.write(insert_note("a"), "a")
            await until_changed(changes, "a")
            assert [row[0] for row in await other.read(listed())] == ["a"]


async def test_rolled_back_operation_is_retried(postgres_database: str) -> None:
    worker, done = ConnectionWorker(PostgresAddress(postgres_database, "notes")), 0

    async def job(_: Connection) -> int:
        nonlocal done
        done += 1
        if done < 3:
            raise asyncpg.DeadlockDetectedError("two waited for each other")
        return done

    async def always_deadlocked(_: Connection) -> None:
        raise asyncpg.DeadlockDetectedError("two waited for each other")

    assert await worker.submit(job) == 3
    with pytest.raises(Unavailable, match="waited for each other"):
        await worker.submit(always_deadlocked)
    await worker.close()


class FailingAddress(PostgresAddress):
    """A database to which the first connection fails with an unexpected error."""

    broken = True

    async def connect(self, *, statement_timeout: bool = True) -> Connection:
        if self.broken:
            self.broken = False
            raise KeyError("an unexpected error")
        return await super().connect(statement_timeout=statement_timeout)


async def one(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT 1"))


async def test_unexpected_connection_error_fails_only_queued_jobs(postgres_database: str) -> None:
    worker = ConnectionWorker(FailingAddress(postgres_database, "notes"))
    async with asyncio.timeout(30):
        outcomes = await asyncio.gather(worker.submit(one), worker.submit(one), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
        assert await worker.submit(one) == 1
        await worker.close()


async def test_unexpected_error_fails_only_its_job(postgres_database: str) -> None:
    async def broken(_: Connection) -> None:
        raise KeyError("an unexpected error")

    worker = ConnectionWorker(PostgresAddress(postgres_database, "notes"))
    async with asyncio.timeout(30):
        outcomes = await asyncio.gather(worker.submit(broken), worker.submit(one), return_exceptions=True)
        await worker.close()
    assert isinstance(outcomes[0], KeyError)
    assert outcomes[1] == 1


async def test_changes_are_delivered_after_an_unexpected_error(postgres_database: str) -> None:
    notifier = PostgresNotifier(FailingAddress(postgres_database, "notes"))
    topics: frozenset[str] | None = None
    async with asyncio.timeout(30), aclosing(notifier.changes()) as changes:
        while topics is None or "a" not in topics:
            notifier.notify("a")
            topics = await anext(changes)
    await notifier.close()


async def test_missing_table_is_unavailable(postgres_database: str) -> None:
    async with open_database(postgres_database, "notes", [FIRST]) as database:
        with pytest.raises(Unavailable, match="does not exist"):
            await database.read("SELECT 1 FROM nowhere")


async def test_old_program_reads_after_a_newer_migration(postgres_database: str) -> None:
    async with open_database(postgres_database, "notes", [FIRST]) as old:
        await old.write(insert_note("a"))
        assert len(await old.read("SELECT * FROM notes")) == 1
        async with open_database(
            postgres_database, "notes", [FIRST, "ALTER TABLE notes ADD COLUMN later TEXT NOT NULL DEFAULT ''"]
        ):
            pass
        assert len(await old.read("SELECT * FROM notes")) == 1
        await old.write(insert_note("b"))


async def test_too_many_topics_are_reported_as_any(postgres_database: str) -> None:
    async with (
        asyncio.timeout(20),
        open_database(postgres_database, "notes", [FIRST]) as one,
        open_database(postgres_database, "notes", [FIRST]) as other,
        aclosing(one.changes()) as changes,
    ):
        for _ in range(2):  # it listens by then
            assert await anext(changes) is None
        await asyncio.gather(*(other.write(insert_note(f"n{number}"), f"n{number}") for number in range(500)))
        topics: set[str] = set()
        while len(topics) < 500:
            change = await anext(changes)
            topics |= {f"n{number}" for number in range(500)} if change is None else change


async def test_missing_driver_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in [name for name in sys.modules if name.startswith("services.common.database.")]:
        if name.rpartition(".")[2] in {"postgres", "places", "lines", "notifier"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("services.common.database.postgres", raising=False)
    assert "hugginggpt[postgres]" in await error_text("postgresql://me:secret@127.0.0.1:9/notes", FailedPrecondition)
