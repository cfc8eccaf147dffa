"""When the events of a batch item are written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protos.hugginggpt.v1.batch_pb2 import BatchSpec
from protos.hugginggpt.v1.event_pb2 import PlanCompleted, RunEnded, RunEvent, TaskEnded, TaskPlanned, TaskStarted
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, TASK_STATE_SUCCEEDED, TaskResult
from protos.hugginggpt.v1.task_pb2 import Task
from services.common.database import Database
from services.orchestrator.journal import Journal
from services.orchestrator.journal.batches import BatchStore, NewBatch
from services.orchestrator.runs import run_log
from services.orchestrator.runs.run_log import RunLog
from tests.support.journal import item_run

PLANNED = RunEvent(task_id=1, task_planned=TaskPlanned(task=Task(id=1, task="summarization")))
STARTED = RunEvent(task_id=1, attempt=1, task_started=TaskStarted())
TASK_ENDED = RunEvent(
    task_id=1, attempt=1, task_ended=TaskEnded(state=TASK_STATE_SUCCEEDED, result=TaskResult(task_id=1, attempt=1))
)
RUN_ENDED = RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED))


class RecordingJournal(Journal):
    """A journal that records the kinds of events of each write."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, "me", 10)
        self.writes: list[list[str | None]] = []

    def append(self, *args: Any, **changes: Any) -> "asyncio.Future[None]":
        self.writes.append([event.WhichOneof("event") for event in args[2]])
        return super().append(*args, **changes)


def copy_of(event: RunEvent) -> RunEvent:
    copied = RunEvent()
    copied.CopyFrom(event)
    return copied


@asynccontextmanager
async def writing(journal: Journal, database: Database) -> AsyncIterator[RunLog]:
    """A stored run of a batch item, whose events are written within the block, which waits for its end."""
    new = item_run("r", "b", 1)
    await BatchStore(database, journal, "me", 10).create(NewBatch("b", new.caller, BatchSpec(), Pipeline()))
    await journal.accept(new)
    run = RunLog(journal, "r", 1, new.caller, [new.first])
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(run.write_events())
        yield run


@pytest.fixture(autouse=True)
def long_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "GATHER_SECONDS", 3600.0)
    monkeypatch.setattr(run_log, "RESULT_GATHER_SECONDS", 3600.0)


async def test_events_of_a_short_item_are_written_once(database: Database) -> None:
    journal = RecordingJournal(database)
    async with writing(journal, database) as run:
        for event in (PLANNED, STARTED):
            run.emit(copy_of(event))
        await journal.row("r", "default")  # some time passes
        for event in (TASK_ENDED, RUN_ENDED):
            run.emit(copy_of(event))
    assert journal.writes == [["task_planned", "task_started", "task_ended", "run_ended"]]


async def test_events_of_a_long_item_are_written_before_its_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "GATHER_SECONDS", 0.001)
    journal = RecordingJournal(database)
    async with writing(journal, database) as run:
        run.emit(copy_of(PLANNED))
        async for event in run.feed.after(1):
            assert event.HasField("task_planned")
            break
        run.emit(copy_of(RUN_ENDED))
    assert journal.writes == [["task_planned"], ["run_ended"]]


async def test_result_of_a_task_is_written_before_other_events_are_due(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "RESULT_GATHER_SECONDS", 0.001)
    journal = RecordingJournal(database)
    async with writing(journal, database) as run:
        for event in (PLANNED, STARTED, TASK_ENDED):
            run.emit(copy_of(event))
        async for event in run.feed.after(3):
            assert event.HasField("task_ended")
            break
        run.emit(copy_of(RUN_ENDED))
    assert journal.writes == [["task_planned", "task_started", "task_ended"], ["run_ended"]]


async def test_item_is_not_behind_while_its_events_are_not_due(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "BEHIND_SECONDS", 0.0)
    async with writing(Journal(database, "me", 10), database) as run:
        run.emit(RunEvent(plan_completed=PlanCompleted()))
        is_behind = run.is_behind
        run.emit(copy_of(RUN_ENDED))
    assert not is_behind
