"""What is kept of a run under way, whatever the journal does meanwhile."""

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
from tests.support.run_stages import GONE, SPEC, FaultyJournal, Stages, running, to_the_end, watched


class Noting(FaultyJournal):
    """Notes the state that it is told with each last event, also when it is in trouble."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.told: list[tuple[int, run_pb2.RunState.ValueType]] = []

    def append(self, *args: Any, **changes: Any) -> "asyncio.Future[None]":
        _, _, events, state = args
        self.told.append((events[-1].sequence, state))
        return super().append(*args, **changes)


@pytest.fixture(autouse=True)
def short_journal_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.runs.run_log.JOURNAL_PAUSE_SECONDS", 0.01)


async def test_a_row_is_never_ahead_of_its_events_though_the_journal_is_away_meanwhile(
    database: Database, stages: Stages
) -> None:
    journal = Noting(database)
    journal.errors["append"] = [GONE] * 3
    async with running(journal, stages) as runs:
        events = await watched(runs, await runs.create(SPEC))
    assert len(journal.told) > 3
    for sequence, state in journal.told:
        assert RunFold(events[:sequence]).run.state == state


async def test_a_run_that_waits_for_approval_says_so_though_the_journal_is_away_meanwhile(
    database: Database, stages: Stages
) -> None:
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
    journal.errors["append"] = [GONE] * 3
    async with running(journal, stages) as runs:
        run_id = await runs.create(RunSpec(request="do it", mode=run_pb2.RUN_MODE_APPROVE))
        async for event in runs.watch(run_id, 0):
            if event.HasField("approval_requested"):
                await runs.approve(run_id, None)
        events = await to_the_end(runs, run_id)
    assert events[-1].HasField("run_ended")
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert sum(event.HasField("approval_requested") for event in events) == 1


class Silent:
    """A journal that never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def append(self, *_: Any, **__: Any) -> "asyncio.Future[None]":
        self.asked.set()
        return asyncio.get_running_loop().create_future()


async def test_who_watches_is_told_though_the_letting_go_is_cut_short() -> None:
    journal = Silent()
    run = RunLog(cast("Journal", journal), "run", 1, caller_pb2.Caller(), [RunEvent(sequence=1)])
    async with asyncio.timeout(5):
        run.emit(RunEvent(plan_note=plan_pb2.Note(kind=plan_pb2.NOTE_KIND_CHAT)))
        keeping = asyncio.create_task(run.write_events())
        await journal.asked.wait()
        keeping.cancel()
        letting_go = asyncio.create_task(run.release())
        await asyncio.sleep(0)  # it waits for what is being written
        letting_go.cancel()
        assert [event async for event in run.feed.after(1)] == []
