"""Idempotency keys of runs, also under concurrent requests."""

import asyncio
import time
from pathlib import Path

import asyncpg
import pytest

from services.common.artifacts import ArtifactStore
from services.common.database import ConstraintViolation, Database, open_database
from services.common.errors import AlreadyExists
from services.orchestrator.journal import Journal
from services.orchestrator.journal.idempotency import IDEMPOTENCY_SECONDS
from services.orchestrator.journal.retention import Retention
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from tests.support.journal import execute, new_run
from tests.support.postgres import emptied_database


async def expire_keys(database: Database) -> None:
    await execute(database, "UPDATE idempotency_keys SET created = ?", time.time() - IDEMPOTENCY_SECONDS - 60)


async def test_repeated_request_returns_the_first_run(database: Database) -> None:
    journal = Journal(database, "me", 10)
    assert await journal.accept(new_run("a", key="k")) == "a"
    assert await journal.accept(new_run("b", key="k")) == "a"
    assert [row.id for row in await journal.rows("default", limit=10)] == ["a"]


async def test_key_is_valid_within_its_tenant_only(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("a", key="k"))
    assert await journal.accept(new_run("b", key="k", tenant="other")) == "b"


async def test_key_of_another_request_is_rejected(database: Database) -> None:
    journal = Journal(database, "me", 10)
    await journal.accept(new_run("a", key="k"))
    with pytest.raises(AlreadyExists):
        await journal.accept(new_run("b", key="k", digest="another"))


async def test_key_is_valid_for_a_day(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, now = Journal(database, "me", 10), time.time
    await journal.accept(new_run("a", key="k"))
    monkeypatch.setattr("time.time", lambda: now() + IDEMPOTENCY_SECONDS - 60)
    assert await journal.accept(new_run("b", key="k")) == "a"
    monkeypatch.setattr("time.time", lambda: now() + IDEMPOTENCY_SECONDS + 60)
    assert await journal.accept(new_run("c", key="k", digest="another")) == "c"
    assert await journal.accept(new_run("d", key="k", digest="another")) == "c"


async def test_concurrent_requests_with_one_key_create_one_run(database_url: str) -> None:
    async with (
        open_database(database_url, SCHEMA, MIGRATIONS) as one,
        open_database(database_url, SCHEMA, MIGRATIONS) as two,
    ):
        journals = [Journal(one, "one", 10), Journal(two, "two", 10)]
        found = await asyncio.gather(
            *(journals[number % 2].accept(new_run(f"r{number}", key="k")) for number in range(20))
        )
        assert len(set(found)) == 1
        assert [row.id for row in await journals[0].rows("default", limit=100)] == found[:1]


async def test_concurrent_requests_with_an_expired_key_create_one_run(database_url: str) -> None:
    async with (
        open_database(database_url, SCHEMA, MIGRATIONS) as one,
        open_database(database_url, SCHEMA, MIGRATIONS) as two,
    ):
        journals = [Journal(one, "one", 60), Journal(two, "two", 60)]
        await journals[0].accept(new_run("old", key="k"))
        await expire_keys(one)
        found = await asyncio.gather(
            *(journals[number % 2].accept(new_run(f"r{number}", key="k")) for number in range(20))
        )
        rows = await journals[0].rows("default", limit=100)
    assert len(set(found)) == 1
    assert {row.id for row in rows} == {"old", found[0]}


async def test_run_that_cannot_be_stored_takes_no_key(database: Database) -> None:
    journal = Journal(database, "me", 60)
    await journal.accept(new_run("a"))
    invalid, valid = await asyncio.gather(
        journal.accept(new_run("a", key="k")), journal.accept(new_run("b", key="other")), return_exceptions=True
    )
    assert isinstance(invalid, ConstraintViolation)
    assert valid == "b"
    assert await journal.accept(new_run("c", key="k")) == "c"


async def test_key_taken_again_while_expired_ones_are_deleted_remains(postgres: str, tmp_path: Path) -> None:
    address = await emptied_database(postgres)
    async with open_database(address, SCHEMA, MIGRATIONS) as database:
        journal = Journal(database, "me", 60)
        retention = Retention(database, ArtifactStore.open(tmp_path.as_uri()), "me", 0)
        await journal.accept(new_run("a", key="k"))
        await expire_keys(database)
        other = await asyncpg.connect(address, server_settings={"search_path": SCHEMA})
        try:
            async with other.transaction():  # another process takes the key
                await other.execute("UPDATE idempotency_keys SET created = $1", time.time())
                collecting = asyncio.create_task(retention.collect())
                await wait_until_blocking(other)
            await collecting
        finally:
            await other.close()
        assert await journal.accept(new_run("b", key="k")) == "a"


async def wait_until_blocking(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Waits until another connection waits for a lock of this one."""
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    async with asyncio.timeout(10):
        while not await connection.fetch(waiting):  # noqa: ASYNC110  # PostgreSQL sends no event about its locks
            await asyncio.sleep(0.01)
