"""Runs and batches that cannot be continued end as FAILED, with the reason, and are not claimed again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.rpc import code_pb2

from protos.hugginggpt.v1 import batch_pb2, caller_pb2, event_pb2, pipeline_pb2, plan_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import ApproveRunRequest
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.database import ConstraintViolation, Database, Query, Steps
from services.common.errors import CorruptData, FailedPrecondition, Unavailable
from services.orchestrator.batches.leases import BatchLeases
from services.orchestrator.failed_takeovers import TAKEOVER_ATTEMPTS, FailedTakeovers
from services.orchestrator.journal import Journal
from services.orchestrator.journal.batch_rows import BatchRow, Claimed, NewBatch
from services.orchestrator.journal.batches import BatchStore
from services.orchestrator.leases import LeaseManager
from services.orchestrator.notifier import ChangeNotifier
from tests.support.run_stages import (
    GONE,
    LEASE_SECONDS,
    SPEC,
    FaultyJournal,
    Stages,
    forever,
    running,
    to_the_end,
    watched,
)

GARBAGE = b"\xff\xff\xff"
CALLER = caller_pb2.Caller(tenant="default")


async def changed(database: Database, sql: str, *values: object) -> None:
    def operation() -> Steps[None]:
        yield Query(sql, values)

    await database.write(operation)


async def left(database: Database, stages: Stages, spec: RunSpec = SPEC) -> str:
    """The id of an active run whose orchestrator has stopped."""
    stages.work = forever
    async with running(FaultyJournal(database, "first"), stages) as runs:
        run_id = await runs.create(spec)
        await stages.running.wait()
    stages.work = None
    stages.running.clear()
    return run_id


async def corrupt(database: Database, run_id: str, sequence: int) -> None:
    await changed(database, "UPDATE events SET event = ? WHERE run_id = ? AND sequence = ?", GARBAGE, run_id, sequence)


async def corrupt_snapshot(database: Database, run_id: str) -> None:
    await changed(database, "UPDATE runs SET snapshot = ? WHERE id = ?", GARBAGE, run_id)


async def unfold(database: Database, run_id: str) -> None:
    """Has the second event speak of a task that was never planned."""
    event = RunEvent(run_id=run_id, sequence=2, task_id=7, task_started=event_pb2.TaskStarted())
    sql = "UPDATE events SET event = ? WHERE run_id = ? AND sequence = 2"
    await changed(database, sql, event.SerializeToString(), run_id)


async def conflict(database: Database, run_id: str) -> None:
    """Stores an event more than the run's row knows of."""
    event = RunEvent(run_id=run_id, sequence=3, plan_note=plan_pb2.Note(kind=plan_pb2.NOTE_KIND_CHAT))
    sql = "INSERT INTO events (run_id, sequence, event) VALUES (?, 3, ?)"
    await changed(database, sql, run_id, event.SerializeToString())


async def ended(database: Database, stages: Stages, run_id: str) -> run_pb2.Run:
    """The run as the next orchestrator shows it once it has ended."""
    async with running(FaultyJournal(database, "second"), stages) as runs:
        await runs.wait_until_ended(run_id)
        return await runs.get(run_id)


@pytest.mark.parametrize("sequence", [1, 2])
async def test_run_with_undecodable_event_ends_as_failed(database: Database, stages: Stages, sequence: int) -> None:
    run_id = await left(database, stages)
    await corrupt(database, run_id, sequence)
    run = await ended(database, stages, run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.failure.reason == "CORRUPT"
    assert run.failure.code == code_pb2.DATA_LOSS
    assert "again" in run.failure.remedy
    assert run.spec.request == "do it"
    assert run.HasField("end_time")


async def test_ended_run_is_read_from_its_snapshot_if_its_events_are_corrupt(
    database: Database, stages: Stages
) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await watched(runs, run_id)
        await corrupt(database, run_id, 2)
        run = await runs.get(run_id)
    assert run.state == run_pb2.RUN_STATE_COMPLETED
    assert run.spec.request == "do it"
    assert len(run.notes) == 1


async def test_ended_run_is_read_from_its_events_if_its_snapshot_is_corrupt(database: Database, stages: Stages) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await watched(runs, run_id)
        await corrupt_snapshot(database, run_id)
        run = await runs.get(run_id)
    assert run.state == run_pb2.RUN_STATE_COMPLETED
    assert len(run.notes) == 1


async def test_run_whose_events_lead_to_no_state_ends_as_failed(database: Database, stages: Stages) -> None:
    run_id = await left(database, stages)
    await unfold(database, run_id)
    run = await ended(database, stages, run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.failure.reason == "CORRUPT"


async def test_run_that_contradicts_the_journal_ends_as_failed(database: Database, stages: Stages) -> None:
    run_id = await left(database, stages)
    await conflict(database, run_id)
    run = await ended(database, stages, run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.failure.reason == "INTERNAL"
    assert "3 attempts" in run.failure.message
    assert run.failure.remedy


async def test_run_with_undecodable_caller_ends_as_failed_and_others_go_on(database: Database, stages: Stages) -> None:
    broken, sound = await left(database, stages), await left(database, stages)
    await changed(database, "UPDATE runs SET caller = ? WHERE id = ?", GARBAGE, broken)
    async with running(FaultyJournal(database, "second"), stages) as runs:
        await runs.wait_until_ended(sound)
        await runs.wait_until_ended(broken)
        assert (await runs.get(sound)).state == run_pb2.RUN_STATE_COMPLETED
        assert (await runs.get(broken)).failure.reason == "CORRUPT"


async def test_run_with_undecodable_approval_ends_as_failed(database: Database, stages: Stages) -> None:
    async def plans(run: Any) -> None:
        task = task_pb2.Task(id=1, task="summarization")
        run.emit(RunEvent(task_id=1, task_planned=event_pb2.TaskPlanned(task=task)))

    stages.work = plans
    spec = RunSpec(request="do it", mode=run_pb2.RUN_MODE_APPROVE)
    journal = FaultyJournal(database, "first")
    async with running(journal, stages) as runs:
        run_id = await runs.create(spec)
        events = runs.watch(run_id, 0)
        async for event in events:
            if event.HasField("approval_requested"):
                break
        approved = ApproveRunRequest(run_id=run_id).SerializeToString()
        while not await journal.approve(run_id, approved + GARBAGE):  # it is being let go of
            pass
    run = await ended(database, stages, run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.failure.reason == "INTERNAL"


@pytest.mark.parametrize("damage", [corrupt, unfold, conflict])
async def test_watcher_of_a_run_that_cannot_be_continued_gets_its_end(
    database: Database, stages: Stages, damage: Any
) -> None:
    run_id = await left(database, stages)
    await damage(database, run_id, *([2] if damage is corrupt else []))
    async with running(FaultyJournal(database, "second"), stages) as runs:
        events = await to_the_end(runs, run_id)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_FAILED
    assert events[-1].run_ended.failure.remedy


async def test_watcher_of_a_run_whose_last_event_is_lost_gets_an_error(database: Database, stages: Stages) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        last = (await watched(runs, run_id))[-1].sequence
        await corrupt(database, run_id, last)
        await runs.wait_until_ended(run_id)
        with pytest.raises(CorruptData):
            await watched(runs, run_id)


async def test_run_that_cannot_be_continued_is_not_claimed_again(database: Database, stages: Stages) -> None:
    run_id = await left(database, stages)
    await corrupt(database, run_id, 1)
    await ended(database, stages, run_id)
    other = Journal(database, "other", 60)
    assert not await other.overdue()
    assert await other.claim(10) == []


async def test_run_that_cannot_be_continued_is_in_the_list_of_ends(database: Database, stages: Stages) -> None:
    run_id = await left(database, stages)
    await corrupt(database, run_id, 1)
    await ended(database, stages, run_id)
    (end,) = await Journal(database, "other", 60).ended(0, (0.0, ""), 10)
    assert end.id == run_id
    assert end.last.run_ended.failure.reason == "CORRUPT"


async def test_run_is_not_failed_while_the_journal_is_away(database: Database, stages: Stages) -> None:
    run_id = await left(database, stages)
    journal = FaultyJournal(database, "second")
    journal.errors["events"] = [GONE] * (TAKEOVER_ATTEMPTS + 2)
    async with running(journal, stages) as runs:
        events = await to_the_end(runs, run_id)
    assert journal.errors["events"] == []
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED


async def test_run_that_was_taken_over_meanwhile_is_not_failed(database: Database, stages: Stages) -> None:
    run_id = await left(database, stages)
    (row,) = await Journal(database, "thief", 60).claim(10)
    with pytest.raises(Unavailable):
        await Journal(database, "me", 60).fail(run_id, row.fence - 1, Failure(reason="CORRUPT"))
    assert not (await Journal(database, "me", 60).row(run_id, "default")).has_ended


async def test_conversation_goes_on_after_a_run_that_cannot_be_read(database: Database, stages: Stages) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        turns: list[str] = []
        for request in ("one", "two"):
            parent = turns[-1] if turns else ""
            turns.append(await runs.create(RunSpec(request=request, parent_run_id=parent)))
            await watched(runs, turns[-1])
        await corrupt(database, turns[1], 2)
        await corrupt_snapshot(database, turns[1])
        third = await runs.create(RunSpec(request="three", parent_run_id=turns[1]))
        events = await watched(runs, third)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED
    assert [turn.text for turn in stages.executed[-1]] == ["one", "", "three"]


def test_transient_errors_are_not_counted_as_failed_takeovers() -> None:
    failed = FailedTakeovers()
    refused = FailedPrecondition("wrong password", reason="DATABASE")
    for error in (GONE, refused, TimeoutError(), ConnectionError(), ExceptionGroup("", [ValueError(), GONE])):
        assert not any(failed.add("run", error) for _ in range(TAKEOVER_ATTEMPTS)), error


def test_failed_takeovers_are_counted_until_the_last_attempt() -> None:
    failed = FailedTakeovers()
    counted = [failed.add("run", ConstraintViolation()) for _ in range(TAKEOVER_ATTEMPTS)]
    assert counted == [False] * (TAKEOVER_ATTEMPTS - 1) + [True]


def test_failed_takeovers_are_counted_anew_once_forgotten() -> None:
    failed = FailedTakeovers()
    for _ in range(TAKEOVER_ATTEMPTS):
        failed.add("run", ConstraintViolation())
    failed.forget("run")
    assert not failed.add("run", ConstraintViolation())


# ---------------------------------------------------------------- batches


@asynccontextmanager
async def driving(database: Database, drive: Any) -> AsyncIterator[BatchStore]:
    """Batches driven by a function of the test's."""
    kept = BatchStore(database, Journal(database, "me", LEASE_SECONDS), "me", LEASE_SECONDS)

    class Executor:
        async def execute(self, claimed: Claimed) -> None:
            await drive(kept, claimed)

    leases: LeaseManager[Claimed, Claimed] = LeaseManager(
        BatchLeases(kept, ChangeNotifier(), ()), Executor(), {}, lease_seconds=LEASE_SECONDS
    )
    async with leases:
        yield kept


async def stored(database: Database, batch_id: str) -> None:
    kept = BatchStore(database, Journal(database, "first", 60), "first", 60)
    plan = pipeline_pb2.Pipeline(plan=plan_pb2.Plan(tasks=[task_pb2.Task(id=1, task="image-to-text")]))
    await kept.create(NewBatch(batch_id, CALLER, batch_pb2.BatchSpec(), plan))
    await kept.add(batch_id, "default", 1, [batch_pb2.NewItem(name="item")], {})
    await kept.start(batch_id, "default", "", "d", 1)


async def over(kept: BatchStore, batch_id: str) -> BatchRow:
    while not (row := await kept.row(batch_id, "default")).has_ended:
        pass
    return row


async def complete(kept: BatchStore, claimed: Claimed) -> None:
    await kept.end(claimed, run_pb2.RUN_STATE_COMPLETED, None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("column", ["caller", "spec", "pipeline"])
async def test_batch_that_cannot_be_decoded_ends_as_failed_and_others_go_on(database: Database, column: str) -> None:
    await stored(database, "broken")
    await stored(database, "sound")
    await changed(database, f"UPDATE batches SET {column} = ? WHERE id = 'broken'", GARBAGE)
    async with driving(database, complete) as kept:
        sound, broken = await over(kept, "sound"), await over(kept, "broken")
    assert sound.state == run_pb2.RUN_STATE_COMPLETED
    assert broken.state == run_pb2.RUN_STATE_FAILED
    assert broken.failure.reason == "CORRUPT"
    assert broken.failure.remedy


@pytest.mark.timeout(60)
async def test_batch_that_breaks_at_every_takeover_ends_as_failed(database: Database) -> None:
    attempts = 0

    async def drive(kept: BatchStore, claimed: Claimed) -> None:
        nonlocal attempts
        attempts += 1
        raise ExceptionGroup("of its tasks", [ConstraintViolation("it is there already")])

    await stored(database, "broken")
    async with driving(database, drive) as kept:
        row = await over(kept, "broken")
    assert row.failure.reason == "INTERNAL"
    assert attempts == TAKEOVER_ATTEMPTS


@pytest.mark.timeout(60)
async def test_batch_is_not_failed_while_the_journal_is_away(database: Database) -> None:
    errors: list[Exception] = [GONE, CorruptData("once"), GONE, ExceptionGroup("of its tasks", [GONE])]

    async def drive(kept: BatchStore, claimed: Claimed) -> None:
        if errors:
            raise errors.pop()
        await complete(kept, claimed)

    await stored(database, "batch")
    async with driving(database, drive) as kept:
        row = await over(kept, "batch")
    assert row.state == run_pb2.RUN_STATE_COMPLETED


async def test_item_that_cannot_be_decoded_fails_alone(database: Database) -> None:
    await stored(database, "batch")
    await changed(database, "UPDATE batch_items SET inputs = ?", GARBAGE)
    kept = BatchStore(database, Journal(database, "me", 60), "me", 60)
    (item,) = await kept.next_items(await kept.row("batch", "default"), 0, 10, 1000)
    assert item.failure
    assert item.failure.reason == "CORRUPT"


async def test_item_fails_with_its_run(database: Database, stages: Stages) -> None:
    await stored(database, "batch")
    spec = RunSpec(request="do it")
    stages.work = forever
    async with running(FaultyJournal(database, "first"), stages) as runs:
        run_id = await runs.create(spec, run_pb2.BatchPosition(batch_id="batch", index=1))
        await stages.running.wait()
    await corrupt(database, run_id, 1)
    await ended(database, stages, run_id)
    kept = BatchStore(database, Journal(database, "me", 60), "me", 60)
    (item,) = (await kept.items("batch", 0, 10)).rows
    assert item.state == run_pb2.RUN_STATE_FAILED
    assert item.failure.reason == "CORRUPT"
