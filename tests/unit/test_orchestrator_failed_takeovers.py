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
from services.orchestrator.batches.lease_source import BatchLeaseSource
from services.orchestrator.journal import Journal
from services.orchestrator.journal.batches import BatchRow, BatchStore, Claimed, NewBatch
from services.orchestrator.leases import TAKEOVER_ATTEMPTS, FailedTakeovers, LeaseManager
from services.orchestrator.notifier import ChangeNotifier
from tests.support.run_stages import (
    JOURNAL_UNAVAILABLE,
    LEASE_SECONDS,
    SPEC,
    FaultyJournal,
    Stages,
    running,
    watch_events,
    watch_to_end,
    work_forever,
)

GARBAGE = b"\xff\xff\xff"
CALLER = caller_pb2.Caller(tenant="default")


async def execute(database: Database, sql: str, *values: object) -> None:
    def operation() -> Steps[None]:
        yield Query(sql, values)

    await database.write(operation)


async def interrupted_run(database: Database, stages: Stages, spec: RunSpec = SPEC) -> str:
    """ID of a run whose orchestrator stopped while it was active."""
    stages.work = work_forever
    async with running(FaultyJournal(database, "first"), stages) as runs:
        run_id = await runs.create(spec)
        await stages.running.wait()
    stages.work = None
    stages.running.clear()
    return run_id


async def corrupt(database: Database, run_id: str, sequence: int) -> None:
    await execute(database, "UPDATE events SET event = ? WHERE run_id = ? AND sequence = ?", GARBAGE, run_id, sequence)


async def corrupt_snapshot(database: Database, run_id: str) -> None:
    await execute(database, "UPDATE runs SET snapshot = ? WHERE id = ?", GARBAGE, run_id)


async def store_event_of_unknown_task(database: Database, run_id: str) -> None:
    """Replaces the second event by one of a task that was never planned."""
    event = RunEvent(run_id=run_id, sequence=2, task_id=7, task_started=event_pb2.TaskStarted())
    sql = "UPDATE events SET event = ? WHERE run_id = ? AND sequence = 2"
    await execute(database, sql, event.SerializeToString(), run_id)


async def store_extra_event(database: Database, run_id: str) -> None:
    """Stores one event more than the run's row counts."""
    event = RunEvent(run_id=run_id, sequence=3, plan_note=plan_pb2.Note(kind=plan_pb2.NOTE_KIND_CHAT))
    sql = "INSERT INTO events (run_id, sequence, event) VALUES (?, 3, ?)"
    await execute(database, sql, run_id, event.SerializeToString())


async def run_after_takeover(database: Database, stages: Stages, run_id: str) -> run_pb2.Run:
    """Waits until another orchestrator has ended the run, and returns the run."""
    async with running(FaultyJournal(database, "second"), stages) as runs:
        await runs.wait_until_ended(run_id)
        return await runs.get(run_id)


@pytest.mark.parametrize("sequence", [1, 2])
async def test_run_with_undecodable_event_ends_as_failed(database: Database, stages: Stages, sequence: int) -> None:
    run_id = await interrupted_run(database, stages)
    await corrupt(database, run_id, sequence)
    run = await run_after_takeover(database, stages, run_id)
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
        await watch_events(runs, run_id)
        await corrupt(database, run_id, 2)
        run = await runs.get(run_id)
    assert run.state == run_pb2.RUN_STATE_COMPLETED
    assert run.spec.request == "do it"
    assert len(run.notes) == 1


async def test_ended_run_is_read_from_its_events_if_its_snapshot_is_corrupt(database: Database, stages: Stages) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await watch_events(runs, run_id)
        await corrupt_snapshot(database, run_id)
        run = await runs.get(run_id)
    assert run.state == run_pb2.RUN_STATE_COMPLETED
    assert len(run.notes) == 1


async def test_run_with_inconsistent_events_ends_as_failed(database: Database, stages: Stages) -> None:
    run_id = await interrupted_run(database, stages)
    await store_event_of_unknown_task(database, run_id)
    run = await run_after_takeover(database, stages, run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.failure.reason == "CORRUPT"


async def test_run_whose_events_contradict_its_row_ends_as_failed(database: Database, stages: Stages) -> None:
    run_id = await interrupted_run(database, stages)
    await store_extra_event(database, run_id)
    run = await run_after_takeover(database, stages, run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.failure.reason == "INTERNAL"
    assert "3 attempts" in run.failure.message
    assert run.failure.remedy


async def test_run_with_undecodable_caller_ends_as_failed_and_others_continue(
    database: Database, stages: Stages
) -> None:
    broken, sound = await interrupted_run(database, stages), await interrupted_run(database, stages)
    await execute(database, "UPDATE runs SET caller = ? WHERE id = ?", GARBAGE, broken)
    async with running(FaultyJournal(database, "second"), stages) as runs:
        await runs.wait_until_ended(sound)
        await runs.wait_until_ended(broken)
        assert (await runs.get(sound)).state == run_pb2.RUN_STATE_COMPLETED
        assert (await runs.get(broken)).failure.reason == "CORRUPT"


async def test_run_with_undecodable_approval_ends_as_failed(database: Database, stages: Stages) -> None:
    async def plan_one_task(run: Any) -> None:
        task = task_pb2.Task(id=1, task="summarization")
        run.emit(RunEvent(task_id=1, task_planned=event_pb2.TaskPlanned(task=task)))

    stages.work = plan_one_task
    spec = RunSpec(request="do it", mode=run_pb2.RUN_MODE_APPROVE)
    journal = FaultyJournal(database, "first")
    async with running(journal, stages) as runs:
        run_id = await runs.create(spec)
        events = runs.watch(run_id, 0)
        async for event in events:
            if event.HasField("approval_requested"):
                break
        approved = ApproveRunRequest(run_id=run_id).SerializeToString()
        while not await journal.approve(run_id, approved + GARBAGE):  # the run is being parked
            pass
    run = await run_after_takeover(database, stages, run_id)
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.failure.reason == "INTERNAL"


@pytest.mark.parametrize("corrupt_run", [corrupt, store_event_of_unknown_task, store_extra_event])
async def test_watcher_of_a_run_that_cannot_be_continued_gets_its_last_event(
    database: Database, stages: Stages, corrupt_run: Any
) -> None:
    run_id = await interrupted_run(database, stages)
    await corrupt_run(database, run_id, *([2] if corrupt_run is corrupt else []))
    async with running(FaultyJournal(database, "second"), stages) as runs:
        events = await watch_to_end(runs, run_id)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_FAILED
    assert events[-1].run_ended.failure.remedy


async def test_watcher_of_a_run_whose_last_event_is_lost_gets_an_error(database: Database, stages: Stages) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        last = (await watch_events(runs, run_id))[-1].sequence
        await corrupt(database, run_id, last)
        await runs.wait_until_ended(run_id)
        with pytest.raises(CorruptData):
            await watch_events(runs, run_id)


async def test_run_that_cannot_be_continued_is_not_claimed_again(database: Database, stages: Stages) -> None:
    run_id = await interrupted_run(database, stages)
    await corrupt(database, run_id, 1)
    await run_after_takeover(database, stages, run_id)
    other = Journal(database, "other", 60)
    assert not await other.overdue()
    assert await other.claim(10) == []


async def test_run_that_cannot_be_continued_is_listed_as_ended(database: Database, stages: Stages) -> None:
    run_id = await interrupted_run(database, stages)
    await corrupt(database, run_id, 1)
    await run_after_takeover(database, stages, run_id)
    (end,) = await Journal(database, "other", 60).ended(0, (0.0, ""), 10)
    assert end.id == run_id
    assert end.last.run_ended.failure.reason == "CORRUPT"


async def test_run_is_not_failed_while_the_journal_is_unavailable(database: Database, stages: Stages) -> None:
    run_id = await interrupted_run(database, stages)
    journal = FaultyJournal(database, "second")
    journal.errors["events"] = [JOURNAL_UNAVAILABLE] * (TAKEOVER_ATTEMPTS + 2)
    async with running(journal, stages) as runs:
        events = await watch_to_end(runs, run_id)
    assert journal.errors["events"] == []
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED


async def test_run_with_a_newer_owner_is_not_failed(database: Database, stages: Stages) -> None:
    run_id = await interrupted_run(database, stages)
    (row,) = await Journal(database, "other", 60).claim(10)
    with pytest.raises(Unavailable):
        await Journal(database, "me", 60).fail(run_id, row.fence - 1, Failure(reason="CORRUPT"))
    assert not (await Journal(database, "me", 60).row(run_id, "default")).has_ended


async def test_conversation_continues_after_a_run_that_cannot_be_read(database: Database, stages: Stages) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        turns: list[str] = []
        for request in ("one", "two"):
            parent = turns[-1] if turns else ""
            turns.append(await runs.create(RunSpec(request=request, parent_run_id=parent)))
            await watch_events(runs, turns[-1])
        await corrupt(database, turns[1], 2)
        await corrupt_snapshot(database, turns[1])
        third = await runs.create(RunSpec(request="three", parent_run_id=turns[1]))
        events = await watch_events(runs, third)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED
    assert [turn.text for turn in stages.executed[-1]] == ["one", "", "three"]


def test_transient_errors_are_not_counted_as_failed_takeovers() -> None:
    failed = FailedTakeovers()
    refused = FailedPrecondition("wrong password", reason="DATABASE")
    for error in (
        JOURNAL_UNAVAILABLE,
        refused,
        TimeoutError(),
        ConnectionError(),
        ExceptionGroup("", [ValueError(), JOURNAL_UNAVAILABLE]),
    ):
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
async def executing_batches(database: Database, execute_batch: Any) -> AsyncIterator[BatchStore]:
    """Batches that a function of the test executes."""
    store = BatchStore(database, Journal(database, "me", LEASE_SECONDS), "me", LEASE_SECONDS)

    class Executor:
        async def execute(self, claimed: Claimed) -> None:
            await execute_batch(store, claimed)

    leases: LeaseManager[Claimed, Claimed] = LeaseManager(
        BatchLeaseSource(store, ChangeNotifier(), ()), Executor(), {}, lease_seconds=LEASE_SECONDS
    )
    async with leases:
        yield store


async def create_batch(database: Database, batch_id: str) -> None:
    store = BatchStore(database, Journal(database, "first", 60), "first", 60)
    plan = pipeline_pb2.Pipeline(plan=plan_pb2.Plan(tasks=[task_pb2.Task(id=1, task="image-to-text")]))
    await store.create(NewBatch(batch_id, CALLER, batch_pb2.BatchSpec(), plan))
    await store.add(batch_id, "default", 1, [batch_pb2.NewItem(name="item")], {})
    await store.start(batch_id, "default", "", "d", 1)


async def ended_batch(store: BatchStore, batch_id: str) -> BatchRow:
    while not (row := await store.row(batch_id, "default")).has_ended:
        pass
    return row


async def complete(store: BatchStore, claimed: Claimed) -> None:
    await store.end(claimed, run_pb2.RUN_STATE_COMPLETED, None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("column", ["caller", "spec", "pipeline"])
async def test_batch_that_cannot_be_decoded_ends_as_failed_and_others_continue(database: Database, column: str) -> None:
    await create_batch(database, "broken")
    await create_batch(database, "sound")
    await execute(database, f"UPDATE batches SET {column} = ? WHERE id = 'broken'", GARBAGE)
    async with executing_batches(database, complete) as store:
        sound, broken = await ended_batch(store, "sound"), await ended_batch(store, "broken")
    assert sound.state == run_pb2.RUN_STATE_COMPLETED
    assert broken.state == run_pb2.RUN_STATE_FAILED
    assert broken.failure.reason == "CORRUPT"
    assert broken.failure.remedy


@pytest.mark.timeout(60)
async def test_batch_whose_execution_fails_repeatedly_ends_as_failed(database: Database) -> None:
    attempts = 0

    async def execute_batch(store: BatchStore, claimed: Claimed) -> None:
        nonlocal attempts
        attempts += 1
        raise ExceptionGroup("items", [ConstraintViolation("duplicate item")])

    await create_batch(database, "broken")
    async with executing_batches(database, execute_batch) as store:
        row = await ended_batch(store, "broken")
    assert row.failure.reason == "INTERNAL"
    assert attempts == TAKEOVER_ATTEMPTS


@pytest.mark.timeout(60)
async def test_batch_is_not_failed_while_the_journal_is_unavailable(database: Database) -> None:
    errors: list[Exception] = [
        JOURNAL_UNAVAILABLE,
        CorruptData("once"),
        JOURNAL_UNAVAILABLE,
        ExceptionGroup("items", [JOURNAL_UNAVAILABLE]),
    ]

    async def execute_batch(store: BatchStore, claimed: Claimed) -> None:
        if errors:
            raise errors.pop()
        await complete(store, claimed)

    await create_batch(database, "batch")
    async with executing_batches(database, execute_batch) as store:
        row = await ended_batch(store, "batch")
    assert row.state == run_pb2.RUN_STATE_COMPLETED


async def test_item_that_cannot_be_decoded_fails_alone(database: Database) -> None:
    await create_batch(database, "batch")
    await execute(database, "UPDATE batch_items SET inputs = ?", GARBAGE)
    store = BatchStore(database, Journal(database, "me", 60), "me", 60)
    (item,) = await store.next_items("batch", 0, 10, 1000)
    assert item.failure
    assert item.failure.reason == "CORRUPT"


async def test_item_fails_with_its_run(database: Database, stages: Stages) -> None:
    await create_batch(database, "batch")
    spec = RunSpec(request="do it")
    stages.work = work_forever
    async with running(FaultyJournal(database, "first"), stages) as runs:
        run_id = await runs.create(spec, run_pb2.BatchPosition(batch_id="batch", index=1))
        await stages.running.wait()
    await corrupt(database, run_id, 1)
    await run_after_takeover(database, stages, run_id)
    store = BatchStore(database, Journal(database, "me", 60), "me", 60)
    (item,) = (await store.items("batch", 0, 10)).rows
    assert item.state == run_pb2.RUN_STATE_FAILED
    assert item.failure.reason == "CORRUPT"
