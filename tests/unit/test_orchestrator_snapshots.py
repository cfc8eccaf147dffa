"""Reading the state of a run: from its snapshot, from this process, or from its events."""

import pytest

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1 import event_pb2, plan_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.database import Database
from services.orchestrator.journal import Journal
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.service import RunService
from tests.support.journal import CALLER
from tests.support.run_stages import SPEC, FaultyJournal, Stages, running, watch_events, watch_to_end, work_forever

APPROVE = RunSpec(request="do it", mode=run_pb2.RUN_MODE_APPROVE)


async def plan_one_task(run: RunLog) -> Failure | None:
    if not run.fold.is_planned:
        task = task_pb2.Task(id=1, task="summarization")
        run.emit(RunEvent(task_id=1, task_planned=event_pb2.TaskPlanned(task=task)))
        run.emit(RunEvent(plan_completed=event_pb2.PlanCompleted(tasks=1)))
    return None


async def answer(run: RunLog) -> Failure | None:
    for text in ("It is ", "done."):
        run.emit(RunEvent(answer_chunk=event_pb2.AnswerChunk(text=text)))
    return None


@pytest.fixture
def answering(stages: Stages) -> Stages:
    stages.work, stages.answer = plan_one_task, answer
    return stages


async def park_run(runs: RunService) -> str:
    """The ID of a run whose plan waits for approval."""
    run_id = await runs.create(APPROVE)
    async for event in runs.watch(run_id, 0):
        if event.HasField("approval_requested"):
            break
    return run_id


async def test_snapshot_of_an_ended_run_is_the_fold_of_its_events(database: Database, answering: Stages) -> None:
    async with running(FaultyJournal(database), answering) as runs:
        run_id = await runs.create(SPEC)
        events = await watch_events(runs, run_id)
        run = await runs.get(run_id)
    stored = await Journal(database, "other", 60).stored_run(run_id, CALLER.tenant)
    assert stored.snapshot == RunFold(events).snapshot()
    assert run == stored.snapshot
    assert run.answer == "It is done."


async def test_state_of_an_ended_run_needs_no_events(database: Database, answering: Stages) -> None:
    journal = FaultyJournal(database)
    async with running(journal, answering) as runs:
        run_id = await runs.create(SPEC)
        await watch_events(runs, run_id)
        await runs.wait_until_ended(run_id)
        journal.errors["events"] = [AssertionError("the events were read")]
        run = await runs.get(run_id)
    assert run.state == run_pb2.RUN_STATE_COMPLETED
    assert run.answer == "It is done."


async def test_state_of_an_active_run_of_this_process_needs_no_events(database: Database, stages: Stages) -> None:
    async def work(run: RunLog) -> Failure | None:
        run.emit(RunEvent(plan_note=plan_pb2.Note(kind=plan_pb2.NOTE_KIND_CHAT)))
        return await work_forever(run)

    stages.work = work
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        run_id = await runs.create(SPEC)
        async for event in runs.watch(run_id, 0):
            if event.sequence == 3:
                break
        journal.errors["events"] = [AssertionError("the events were read")]
        run = await runs.get(run_id)
    assert run.state == run_pb2.RUN_STATE_RUNNING
    assert run.last_sequence == 3
    assert len(run.notes) == 2


async def test_state_of_an_active_run_of_another_process_is_read_from_its_events(
    database: Database, stages: Stages
) -> None:
    stages.work = work_forever
    async with running(FaultyJournal(database, "first"), stages) as first:
        run_id = await first.create(SPEC)
        async for event in first.watch(run_id, 0):
            if event.sequence == 2:
                break
        async with running(FaultyJournal(database, "second"), Stages()) as second:
            run = await second.get(run_id)
    assert run.state == run_pb2.RUN_STATE_RUNNING
    assert run.last_sequence == 2


async def test_run_that_waits_for_approval_is_read_from_its_snapshot(database: Database, answering: Stages) -> None:
    journal = FaultyJournal(database)
    async with running(journal, answering) as runs:
        run_id = await park_run(runs)
        journal.errors["events"] = [AssertionError("the events were read")]
        run = await runs.get(run_id)
    assert run.state == run_pb2.RUN_STATE_AWAITING_APPROVAL
    assert [status.task.id for status in run.tasks] == [1]


async def test_snapshot_of_an_approved_run_is_replaced_at_its_end(database: Database, answering: Stages) -> None:
    async with running(FaultyJournal(database), answering) as runs:
        run_id = await park_run(runs)
        await runs.approve(run_id, None)
        events = await watch_to_end(runs, run_id)
        run = await runs.get(run_id)
    assert run == RunFold(events).snapshot()
    assert events[-1].HasField("run_ended")
