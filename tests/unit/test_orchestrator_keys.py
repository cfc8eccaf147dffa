"""Idempotency keys where much happens at once."""

import asyncio
import time
from pathlib import Path

import asyncpg
import pytest

from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunAccepted, RunEvent
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.artifacts import ArtifactStore
from services.common.database import ConstraintViolation, Database, Query, Steps, open_database
from services.orchestrator.journal import Journal
from services.orchestrator.journal.idempotency import IDEMPOTENCY_SECONDS
from services.orchestrator.journal.retention import Retention
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from tests.support.postgres import emptied_database

EXPIRED = IDEMPOTENCY_SECONDS + 60


def new(run_id: str, key: str = "") -> NewRun:
    first = RunEvent(run_id=run_id, sequence=1, run_accepted=RunAccepted(spec=RunSpec(request="hello")))
    return NewRun(run_id, run_id, "", "hello", 9e9, Caller(tenant="default"), key, "d", first)


async def expire(database: Database) -> None:
    def operation() -> Steps[None]:
        yield Query("UPDATE idempotency_keys SET created = ?", (time.time() - EXPIRED,))

    await database.write(operation)


async def test_an_expired_key_sent_many_times_at_once_makes_one_run(database_url: str) -> None:
    async with (
        open_database(database_url, SCHEMA, MIGRATIONS) as here,
        open_database(database_url, SCHEMA, MIGRATIONS) as there,
    ):
        journals = [Journal(database, str(number), 60) for number, database in enumerate((here, there))]
        await journals[0].accept(new("old", "k"))
        await expire(here)
        found = await asyncio.gather(*(journals[number % 2].accept(new(f"r{number}", "k")) for number in range(20)))
        rows = await journals[0].rows("default", limit=100)
    assert len(set(found)) == 1
    assert {row.id for row in rows} == {"old", found[0]}


async def test_a_run_that_cannot_be_kept_takes_no_key_and_spoils_no_other(database: Database) -> None:
    journal = Journal(database, "me", 60)
    await journal.accept(new("a"))
    broken, beside = await asyncio.gather(
        journal.accept(new("a", "k")), journal.accept(new("b", "other")), return_exceptions=True
    )
    assert isinstance(broken, ConstraintViolation)
    assert beside == "b"
    assert await journal.accept(new("c", "k")) == "c"


@pytest.fixture
async def postgres_database(postgres: str) -> str:
    """Of an empty database of PostgreSQL."""
    return await emptied_database(postgres)


async def test_a_key_that_is_taken_anew_while_old_ones_go_stands_for_its_new_run(
    postgres_database: str, tmp_path: Path
) -> None:
    async with open_database(postgres_database, SCHEMA, MIGRATIONS) as database:
        journal = Journal(database, "me", 60)
        retention = Retention(database, ArtifactStore.open(tmp_path.as_uri()), "me", 0)
        await journal.accept(new("a", "k"))
        await expire(database)
        other = await asyncpg.connect(postgres_database, server_settings={"search_path": SCHEMA})
        try:
            async with other.transaction():  # somebody takes the key
                await other.execute("UPDATE idempotency_keys SET created = $1", time.time())
                collecting = asyncio.create_task(retention.collect())
                await _waited_for(other)
            await collecting
        finally:
            await other.close()
        assert await journal.accept(new("b", "k")) == "a"


async def _waited_for(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    async with asyncio.timeout(10):
        while not await connection.fetch(waiting):  # noqa: ASYNC110  # PostgreSQL tells nobody of its locks
            await asyncio.sleep(0.01)
