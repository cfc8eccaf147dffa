"""Behaviour common to SQLite and PostgreSQL."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import asyncpg
import pytest

from services.common.database import (
    ConstraintViolation,
    Database,
    InsertInto,
    Operation,
    Query,
    Rows,
    Steps,
    open_database,
)
from services.common.errors import FailedPrecondition, InvalidRequest, Unavailable

SCHEMA = "notes"
FIRST = "CREATE TABLE notes (id TEXT PRIMARY KEY, number INTEGER NOT NULL)"
NOTES = InsertInto("notes", {"id": "text", "number": "bigint"})


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with open_database(database_url, SCHEMA, [FIRST]) as opened:
        yield opened


def single_query(sql: str, *values: object) -> Operation[Rows]:
    def operation() -> Steps[Rows]:
        return (yield Query(sql, values))

    return operation


def insert_note(name: str, number: int = 0) -> Operation[Rows]:
    return single_query("INSERT INTO notes (id, number) VALUES (?, ?)", name, number)


def double_number(name: str) -> Operation[int]:
    """Reads a number and writes twice that."""

    def operation() -> Steps[int]:
        ((number,),) = yield Query("SELECT number FROM notes WHERE id = ?", (name,))
        yield Query("UPDATE notes SET number = ? WHERE id = ?", (2 * number + 1, name))
        return int(number)

    return operation


async def names(database: Database) -> list[str]:
    return [name for (name,) in await database.read("SELECT id FROM notes ORDER BY id")]


async def test_operations_with_one_topic_run_in_order(database: Database) -> None:
    await database.write(insert_note("a"), "a")
    found = await asyncio.gather(*(database.write(double_number("a"), "a") for _ in range(30)))
    assert found == [2**number - 1 for number in range(30)]


async def test_failed_operation_is_rolled_back_alone(database: Database) -> None:
    def operation() -> Steps[None]:
        yield Query("INSERT INTO notes (id, number) VALUES (?, 0)", ("lost",))
        raise FailedPrecondition("changed its mind")

    results = await asyncio.gather(
        database.write(insert_note("a")),
        database.write(operation),
        database.write(insert_note("b")),
        return_exceptions=True,
    )
    assert isinstance(results[1], FailedPrecondition)
    assert await names(database) == ["a", "b"]


async def test_violated_constraint_raises_constraint_violation(database: Database) -> None:
    await database.write(insert_note("a"))
    with pytest.raises(ConstraintViolation):
        await database.write(insert_note("a"))


async def test_rows_are_inserted_only_if_the_query_returns_a_row(database: Database) -> None:
    def operation(name: str) -> Operation[Rows]:
        def steps() -> Steps[Rows]:
            puts = [(NOTES, [(f"{name}-1", 1), (f"{name}-2", 2)])]
            sql = "UPDATE notes SET number = 9 WHERE id = ? RETURNING number"
            return (yield Query(sql, (name,), puts, alone=True))

        return steps

    await database.write(insert_note("a"))
    assert [tuple(row) for row in await database.write(operation("a"))] == [(9,)]
    assert list(await database.write(operation("b"))) == []
    assert await names(database) == ["a", "a-1", "a-2"]


async def test_cancelling_a_write_does_not_undo_it(database: Database) -> None:
    database.write(insert_note("a"), "a").cancel()
    await database.write(insert_note("b"), "a")
    assert await names(database) == ["a", "b"]


async def test_texts_may_contain_any_character(database: Database) -> None:
    await database.write(insert_note("zero\0 and \N{GRINNING FACE}"))
    assert len(await names(database)) == 1
    assert await database.read("SELECT id FROM notes WHERE id = ?", "absent\0") == []


async def test_writes_before_close_are_committed(database_url: str) -> None:
    async with open_database(database_url, SCHEMA, [FIRST]) as database:
        futures = [database.write(insert_note(f"n{number:02}"), str(number)) for number in range(50)]
    await asyncio.gather(*futures)
    async with open_database(database_url, SCHEMA, [FIRST]) as database:
        assert len(await names(database)) == 50


async def test_closed_database_rejects_requests(database_url: str) -> None:
    async with open_database(database_url, SCHEMA, [FIRST]) as database:
        await database.write(insert_note("a"))
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable, match="closed"):
            await database.write(insert_note("b"))
        with pytest.raises(Unavailable, match="closed"):
            await names(database)


async def test_changes_of_another_process_are_reported(database_url: str) -> None:
    async with (
        asyncio.timeout(10),
        open_database(database_url, SCHEMA, [FIRST]) as mine,
        open_database(database_url, SCHEMA, [FIRST]) as other,
        aclosing(mine.changes()) as changes,
    ):
        assert await anext(changes) is None  # the first report is always of any topic
        await other.write(insert_note("a"), "a")
        while (change := await anext(changes)) is not None and "a" not in change:
            pass
        assert await names(mine) == ["a"]


async def test_unsupported_address_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="mysql"):
        async with open_database("mysql://me@here/notes", SCHEMA, [FIRST]):
            pass


# ---------------------------------------------------------------- versions


async def test_schema_one_version_newer_is_used_unchanged(database_url: str) -> None:
    newer = [FIRST, "ALTER TABLE notes ADD COLUMN later TEXT NOT NULL DEFAULT 'x'; CREATE TABLE more (id TEXT)"]
    async with open_database(database_url, SCHEMA, newer):
        pass
    async with open_database(database_url, SCHEMA, [FIRST]) as database:
        await database.write(insert_note("a"))
    async with open_database(database_url, SCHEMA, newer) as database:
        assert [tuple(row) for row in await database.read("SELECT id, later FROM notes")] == [("a", "x")]


async def test_schema_two_versions_newer_is_rejected(database_url: str) -> None:
    async with open_database(database_url, SCHEMA, [FIRST, "CREATE TABLE more (id TEXT)", "DROP TABLE more"]):
        pass
    with pytest.raises(FailedPrecondition, match="version 3") as refused:
        async with open_database(database_url, SCHEMA, [FIRST]):
            pass
    assert refused.value.reason == "NEWER_SCHEMA"


async def test_failed_migration_leaves_no_changes(database_url: str) -> None:
    with pytest.raises((Unavailable, asyncpg.PostgresError)):
        async with open_database(
            database_url, SCHEMA, [FIRST, "CREATE TABLE half (id TEXT); CREATE TABLE half (id TEXT)"]
        ):
            pass
    async with open_database(database_url, SCHEMA, [FIRST, "CREATE TABLE half (id TEXT)"]) as database:
        assert await database.read("SELECT id FROM half") == []


async def test_concurrent_first_starts_all_succeed(database_url: str) -> None:
    start = asyncio.Barrier(6)

    async def replica(name: str) -> None:
        await start.wait()
        async with open_database(database_url, SCHEMA, [FIRST, "CREATE TABLE more (id TEXT)"]) as database:
            await database.write(insert_note(name))

    await asyncio.gather(*(replica(str(number)) for number in range(6)))
    async with open_database(database_url, SCHEMA, [FIRST, "CREATE TABLE more (id TEXT)"]) as database:
        assert len(await names(database)) == 6


ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i % 9 + 1 FROM n) INSERT INTO half SELECT COUNT(*) FROM n"


async def test_killed_migration_is_completed_at_the_next_start(database_url: str) -> None:
    async with open_database(database_url, SCHEMA, [FIRST]):
        pass
    stalling = ENDLESS if "://" not in database_url else "SELECT pg_sleep(1.5)"
    program = f"""
import asyncio
from services.common.database import open_database
async def main():
    async with open_database({database_url!r}, {SCHEMA!r}, [{FIRST!r}, "CREATE TABLE half (id TEXT); {stalling}"]):
        pass
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=Path(__file__).parents[2])
    try:
        async with asyncio.timeout(30):
            while not await _migrating(database_url):
                assert process.returncode is None
                await asyncio.sleep(0.02)
    finally:
        process.kill()
        await process.wait()
    async with open_database(database_url, SCHEMA, [FIRST, "CREATE TABLE half (id TEXT)"]) as database:
        assert await database.read("SELECT id FROM half") == []
        assert [row[0] for row in await database.read("SELECT version FROM schemas")] == [2]


async def _migrating(database_url: str) -> bool:
    """Whether the migration is running."""
    if "://" not in database_url:
        connection = sqlite3.connect(database_url, timeout=0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        finally:
            connection.close()
        return False
    watching = await asyncpg.connect(database_url)
    try:
        query = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(1%' AND pid != pg_backend_pid()"
        return bool(await watching.fetch(query))
    finally:
        await watching.close()
