"""Runs and their journal, with a fake planner, tasks and responder."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import NoReturn

import pytest

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.v1 import run_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.database import Database, open_database
from services.common.errors import Unavailable
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from services.orchestrator.runs.run_log import RunLog
from tests.support.run_stages import (
    JOURNAL_UNAVAILABLE,
    SPEC,
    FaultyJournal,
    Stages,
    running,
    serving,
    watch_events,
    watch_to_end,
    work_forever,
)


async def test_run_whose_caller_disconnects_during_its_write_is_executed(database: Database, stages: Stages) -> None:
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        accepting = asyncio.create_task(runs.create(SPEC))
        await journal.accept_called.wait()
        accepting.cancel()
        await asyncio.wait([accepting])
        assert accepting.cancelled()
        await stages.running.wait()
        (row,) = await journal.rows("default", limit=10)
        assert (await watch_events(runs, row.id))[-1].HasField("run_ended")


async def test_run_is_resumed_after_the_journal_failed_at_its_start(database: Database, stages: Stages) -> None:
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        parent = await runs.create(SPEC)
        await watch_events(runs, parent)
        journal.errors["conversation"] = [JOURNAL_UNAVAILABLE]
        run_id = await runs.create(RunSpec(request="and then", parent_run_id=parent))
        events = await watch_to_end(runs, run_id)
    assert any(event.HasField("taken_over") for event in events)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED


async def test_failed_takeover_is_repeated(database: Database, stages: Stages) -> None:
    async with running(FaultyJournal(database, "first"), stages) as runs:
        stages.work = work_forever
        run_id = await runs.create(SPEC)
        await stages.running.wait()
    stages.work, journal = None, FaultyJournal(database, "second")
    journal.errors["events"] = [ValueError("not an event")]
    stages.running.clear()
    async with running(journal, stages) as runs:
        await stages.running.wait()
        assert (await watch_to_end(runs, run_id))[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED
        assert journal.errors["events"] == []


async def test_claiming_continues_after_an_unexpected_error(database: Database, stages: Stages) -> None:
    journal = FaultyJournal(database)
    journal.errors["claim"] = [ZeroDivisionError()]
    async with running(FaultyJournal(database, "first"), stages) as runs:
        stages.work = work_forever
        run_id = await runs.create(SPEC)
        await stages.running.wait()
    stages.work = None
    async with running(journal, stages) as runs:
        assert (await watch_to_end(runs, run_id))[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED


async def test_conversation_continues_after_its_first_run_was_deleted(database: Database, stages: Stages) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        first = await runs.create(RunSpec(request="one"))
        await watch_events(runs, first)
        second = await runs.create(RunSpec(request="two", parent_run_id=first))
        await watch_events(runs, second)
        await runs.delete(first)
        third = await runs.create(RunSpec(request="three", parent_run_id=second))
        events = await watch_events(runs, third)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED
    assert [turn.text for turn in stages.executed[-1]] == ["two", "", "three"]


@pytest.mark.parametrize("stage", ["work", "answer"])
async def test_unexpected_error_ends_the_run_without_its_text(database: Database, stages: Stages, stage: str) -> None:
    async def broken(_: RunLog) -> Failure | None:
        raise ExceptionGroup("steps", [ZeroDivisionError("secret")])

    setattr(stages, stage, broken)
    async with running(FaultyJournal(database), stages) as runs:
        ending = (await watch_events(runs, await runs.create(SPEC)))[-1].run_ended
    assert ending.failure.reason == "INTERNAL"
    assert ending.failure.message == "internal error"
    assert ending.state in {run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_INCOMPLETE}


async def test_stop_does_not_wait_for_an_unavailable_journal(database: Database, stages: Stages) -> None:
    stages.work = work_forever
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        run_id = await runs.create(SPEC)
        await stages.running.wait()
        journal.errors = {"append": [JOURNAL_UNAVAILABLE] * 1000, "release": [JOURNAL_UNAVAILABLE]}
        await runs.cancel(run_id)


async def test_run_stored_while_the_process_stops_is_executed_by_another(database: Database, stages: Stages) -> None:
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        accepting = asyncio.create_task(runs.create(SPEC))
        await journal.accept_called.wait()
    run_id = await accepting
    assert not stages.executed
    async with running(FaultyJournal(database, "second"), stages) as runs:
        assert (await watch_to_end(runs, run_id))[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED


@pytest.mark.parametrize("after", [0, -3])
async def test_active_run_is_watched_from_its_first_event(database: Database, stages: Stages, after: int) -> None:
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        events = [event async for event in runs.watch(run_id, after)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_events_are_written_once_the_journal_is_available_again(
    database: Database, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.runs.run_log.JOURNAL_PAUSE_SECONDS", 0.01)
    journal = FaultyJournal(database)
    journal.errors["append"] = [JOURNAL_UNAVAILABLE] * 3
    async with running(journal, stages) as runs:
        events = await watch_events(runs, await runs.create(SPEC))
    assert journal.errors["append"] == []
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED


async def test_run_that_cannot_be_stored_is_refused_and_not_executed(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.common.database.sqlite._BUSY_SECONDS", 0.05)
    async with (
        open_database(tmp_path / "other.sqlite", SCHEMA, MIGRATIONS) as other,
        running(FaultyJournal(other), stages) as runs,
    ):
        blocker = sqlite3.connect(tmp_path / "other.sqlite", isolation_level=None)
        with contextlib.closing(blocker):
            blocker.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="locked"):
                await runs.create(SPEC)
        assert not stages.executed
        assert (await watch_events(runs, await runs.create(SPEC)))[-1].HasField("run_ended")


class BlockedContext:
    """Context of a call whose first write never ends."""

    def __init__(self) -> None:
        self.write_started = asyncio.Event()

    async def write(self, _: RunEvent) -> None:
        self.write_started.set()
        await asyncio.Event().wait()


CANCELLED_WITH_CALL = RunSpec(request="do it", on_disconnect=run_pb2.ON_DISCONNECT_CANCEL)


async def test_run_is_cancelled_with_its_call_while_the_journal_is_unavailable(
    database: Database, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> NoReturn:
        raise JOURNAL_UNAVAILABLE

    stages.work = work_forever
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        context = BlockedContext()
        calling = asyncio.create_task(
            serving(runs, database).CreateRun(CreateRunRequest(spec=CANCELLED_WITH_CALL), context)
        )
        await context.write_started.wait()
        await stages.running.wait()
        with monkeypatch.context() as patch:
            patch.setattr(journal, "row", unavailable)
            calling.cancel()
            await asyncio.wait([calling])
        (row,) = await journal.rows("default", limit=10)
        assert (await watch_events(runs, row.id))[-1].run_ended.state == run_pb2.RUN_STATE_CANCELLED


async def test_run_is_cancelled_with_its_call_during_its_write(database: Database, stages: Stages) -> None:
    stages.work = work_forever
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        calling = asyncio.create_task(
            serving(runs, database).CreateRun(CreateRunRequest(spec=CANCELLED_WITH_CALL), BlockedContext())
        )
        await journal.accept_called.wait()
        (write,) = journal.writes
        calling.cancel()
        await asyncio.wait([calling])
        assert (await watch_events(runs, await write))[-1].run_ended.state == run_pb2.RUN_STATE_CANCELLED
