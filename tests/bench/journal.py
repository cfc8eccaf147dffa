"""Time that the journal adds to each task of a run, since every step waits for its commit."""

import sqlite3
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent, TaskEnded, TaskStarted
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_RUNNING, TASK_STATE_SUCCEEDED, RunSpec, TaskResult
from services.common import database
from services.orchestrator.journal import Journal
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from services.orchestrator.runs import new_run
from tests.bench.rows import Row, median
from tests.bench.shapes import Script
from tests.support import postgres

STEPS = 100
EVENT = bytes(500)
REPEATS = 5
SQLITE_MS, POSTGRES_MS = 0.5, 1.5


async def rows() -> list[Row]:
    """Figures of a run of a hundred sequential tasks, on SQLite and, where it is installed, PostgreSQL."""
    note = f"the journal alone: {STEPS} steps, a task's start and end each; reference: a bare insert and its commit"
    with TemporaryDirectory() as home:
        steps = await _ms_per_step(str(Path(home) / "journal.sqlite"))
        bare = _bare_sqlite(Path(home) / "bare.sqlite")
    measured = [Row("journal.sqlite_ms_per_task", steps, "ms", SQLITE_MS, bare, note)]
    try:
        with postgres.running_postgres() as url:
            steps, bare = await _ms_per_step(url), await _bare_postgres(url)
    except RuntimeError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return measured
    return [*measured, Row("journal.postgres_ms_per_task", steps, "ms", POSTGRES_MS, bare, note)]


async def _ms_per_step(url: str) -> float:
    async with database.open_database(url, SCHEMA, MIGRATIONS) as opened:
        journal = Journal(opened, "bench", 10.0)
        return median([await _steps(journal) for _ in range(REPEATS)])


async def _steps(journal: Journal) -> float:
    run = _new_run()
    await journal.accept(run)
    started = time.perf_counter()
    for step in range(1, STEPS + 1):
        await journal.append(run.id, 1, _events(run.id, step), RUN_STATE_RUNNING)
    return 1000 * (time.perf_counter() - started) / STEPS


def _new_run() -> NewRun:
    spec = RunSpec(plan=Script("chain", STEPS).plan_message())
    return new_run.build(spec, Caller(tenant="default"), None, "digest", 900.0)


def _events(run_id: str, step: int) -> list[RunEvent]:
    by = Candidate(model_id="model", revision="1", expert="cast")
    result = TaskResult(task_id=step, attempt=1, by=by, outputs={"text": Value(text="done")}, input_digest="0" * 64)
    events = [
        RunEvent(task_started=TaskStarted(by=by)),
        RunEvent(task_ended=TaskEnded(state=TASK_STATE_SUCCEEDED, result=result)),
    ]
    for number, event in enumerate(events, start=2 * step):
        event.run_id, event.sequence, event.task_id, event.attempt = run_id, number, step, 1
        event.time.GetCurrentTime()
    return events


def _bare_sqlite(path: Path) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE events (event BLOB NOT NULL)")
    taken = []
    for _ in range(STEPS):
        started = time.perf_counter()
        connection.execute("INSERT INTO events VALUES (?)", (EVENT,))
        taken.append(1000 * (time.perf_counter() - started))
    connection.close()
    return median(taken)


async def _bare_postgres(url: str) -> float:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE bare (event BYTEA NOT NULL)")
    taken = []
    for _ in range(STEPS):
        started = time.perf_counter()
        await connection.execute("INSERT INTO bare VALUES ($1)", EVENT)
        taken.append(1000 * (time.perf_counter() - started))
    await connection.close()
    return median(taken)
