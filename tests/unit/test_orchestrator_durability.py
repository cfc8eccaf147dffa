"""What is stored of an active run while the journal is unavailable."""

import asyncio
from typing import Any, cast

import pytest

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1 import caller_pb2, event_pb2, plan_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.database import Database
from services.orchestrator.journal import Journal
from services.orchestrator.runs.run_log import RunLog
from tests.support.run_stages import (
    JOURNAL_UNAVAILABLE,
    SPEC,
    FaultyJournal,
    Stages,
    running,
    watch_events,
    watch_to_end,
)


class RecordingJournal(FaultyJournal):
    """A journal that records the number of the last event of each write and the state, also of failed writes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.states: list[tuple[int, run_pb2.RunState.ValueType]] = []

    def append(self, *args: Any, **changes: Any) -> "asyncio.Future[None]":
        _, _, events, state = args
        self.states.append((events[-1].sequence, state))
        return super().append(*args, **changes)


@pytest.fixture(autouse=True)
def short_journal_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.runs.run_log.JOURNAL_PAUSE_SECONDS", 0.01)


async def test_state_of_each_write_is_that_of_its_last_event_after_failed_writes(
    database: Database, stages: Stages
) -> None:
    journal = RecordingJournal(database)
    journal.errors["append"] = [JOURNAL_UNAVAILABLE] * 3
    async with running(journal, stages) as runs:
        events = await watch_events(runs, await runs.create(SPEC))
    assert len(journal.states) > 3
    for sequence, state in journal.states:
        assert RunFold(events[:sequence]).run.state == state


async def test_approval_is_requested_once_after_failed_writes(database: Database, stages: Stages) -> None:
    async def work(run: RunLog) -> Failure | None:
        if run.fold.is_planned:
            return None
        run.emit(
            RunEvent(task_id=1, task_planned=event_pb2.TaskPlanned(task=task_pb2.Task(id=1, task="summarization")))
        )
        run.emit(RunEvent(plan_completed=event_pb2.PlanCompleted(tasks=1)))
        return None

    stages.work = work
    journal = FaultyJournal(database)
    journal.errors["append"] = [JOURNAL_UNAVAILABLE] * 3
    async with running(journal, stages) as runs:
        run_id = await runs.create(RunSpec(request="do it", mode=run_pb2.RUN_MODE_APPROVE))
        async for event in runs.watch(run_id, 0):
            if event.HasField("approval_requested"):
                await runs.approve(run_id, None)
        events = await watch_to_end(runs, run_id)
    assert events[-1].HasField("run_ended")
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert sum(event.HasField("approval_requested") for event in events) == 1


class HangingJournal:
    """A journal whose states never end."""

    def __init__(self) -> None:
        self.write_started = asyncio.Event()

    def append(self, *_: Any, **__: Any) -> "asyncio.Future[None]":
        self.write_started.set()
        return asyncio.get_running_loop().create_future()


async def test_feed_ends_when_the_release_of_its_run_is_cancelled() -> None:
    journal = HangingJournal()
    run = RunLog(cast("Journal", journal), "run", 1, caller_pb2.Caller(), [RunEvent(sequence=1)])
    async with asyncio.timeout(5):
        run.emit(RunEvent(plan_note=plan_pb2.Note(kind=plan_pb2.NOTE_KIND_CHAT)))
        writing = asyncio.create_task(run.write_events())
        await journal.write_started.wait()
        writing.cancel()
        releasing = asyncio.create_task(run.release())
        await asyncio.sleep(0)  # it waits for the write in flight
        releasing.cancel()
        assert [event async for event in run.feed.after(1)] == []
