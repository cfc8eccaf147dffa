"""Behaviour specific to SQLite: locks, full disk, permissions."""

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from services.common.database import Operation, Query, Rows, Steps, open_database
from services.common.database.sqlite import SQLite
from services.common.errors import Unavailable

FIRST = "CREATE TABLE notes (id TEXT PRIMARY KEY)"


def insert_note(name: str) -> Operation[Rows]:
    def operation() -> Steps[Rows]:
        return (yield Query("INSERT INTO notes (id) VALUES (?)", (name,)))

    return operation


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.sqlite"


@pytest.mark.parametrize("spoil", [Path.mkdir, lambda path: path.write_text("not a database " * 100)])
async def test_unusable_file_is_unavailable(path: Path, spoil: Callable[[Path], object]) -> None:
    spoil(path)
    with pytest.raises(Unavailable, match="database"):
        async with open_database(path, "notes", [FIRST]):
            pass


async def test_locked_database_fails_the_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.database.sqlite._BUSY_SECONDS", 0.05)
    async with open_database(path, "notes", [FIRST]) as database:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            await database.write(insert_note("a"))
        blocker.execute("ROLLBACK")
        blocker.close()
        await database.write(insert_note("a"))


async def test_unexpected_error_fails_the_write_and_not_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[object]:
        raise KeyError("an unexpected error")

    async with asyncio.timeout(30), open_database(path, "notes", [FIRST]) as database:
        with monkeypatch.context() as patch:
            patch.setattr("services.common.database.sqlite._run_all", broken)
            with pytest.raises(Unavailable):
                await database.write(insert_note("a"))
        await database.write(insert_note("a"))


async def test_full_disk_fails_a_write_and_preserves_others(path: Path) -> None:
    async with open_database(path, "notes", [FIRST]) as database:
        assert isinstance(database, SQLite)
        await database.write(insert_note("before"))
        ((pages,),) = await database.read("PRAGMA page_count")
        database._write_connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(Unavailable, match="full") as refused:
            await database.write(insert_note("x" * 100_000))
        assert "space" in refused.value.remedy
        database._write_connection.execute("PRAGMA max_page_count = 100000")
        await database.write(insert_note("after"))
        assert [name for (name,) in await database.read("SELECT id FROM notes ORDER BY id")] == ["after", "before"]


def test_read_only_file_is_unavailable() -> None:
    program = """
import asyncio, os, sys
from services.common.database import open_database, sqlite
from services.common.errors import Unavailable
if os.getuid() == 0:  # root may write any file
    os.setgroups([])
    os.setuid(65534)
async def main():
    try:
        async with open_database(sys.argv[1], "notes", []):
            print("opened")
    except Unavailable as error:
        print(error.message, "|", error.remedy)
asyncio.run(main())
"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "notes.sqlite")
        asyncio.run(_made(file))
        file.chmod(0o444)
        Path(folder).chmod(0o555)
        command = [sys.executable, "-c", program, str(file)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
        Path(folder).chmod(0o755)
    assert "the database cannot be written" in ran.stdout, ran.stderr
    assert "check that its file is writable" in ran.stdout


async def _made(file: Path) -> None:
    async with open_database(file, "notes", [FIRST]):
        pass


async def test_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "notes.sqlite"
    async with open_database(f"sqlite://{path}", "notes", [FIRST]) as database:
        await database.write(insert_note("a"))
        files = [path, *path.parent.glob("notes.sqlite-*")]
        assert len(files) == 3
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


async def test_close_closes_all_connections(path: Path) -> None:
    async with open_database(path, "notes", [FIRST]) as database:
        await database.read("SELECT 1")
    assert [file.name for file in path.parent.glob("notes.sqlite-*")] == []  # SQLite removes them with the last one


async def test_changes_continue_after_a_failed_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        asyncio.timeout(10),
        open_database(path, "notes", [FIRST]) as database,
        aclosing(database.changes()) as changes,
    ):
        assert await anext(changes) is None
        reading, failed = database.read, asyncio.Event()

        async def read(sql: str, *values: object) -> Rows:
            if not failed.is_set():
                failed.set()
                raise Unavailable("the disk is gone")
            return await reading(sql, *values)

        monkeypatch.setattr(database, "read", read)
        await database.write(insert_note("a"))
        assert await anext(changes) is None
        assert failed.is_set()
