"""Leases of runs: lost, renewed, released, and claimed by another orchestrator."""

import asyncio
import time
from collections.abc import Collection

import pytest

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.v1 import event_pb2, run_pb2
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunAccepted, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.database import Database, Query, Steps
from services.common.errors import Unavailable
from services.orchestrator.journal import Journal
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


async def take_away(database: Database, run_id: str) -> None:
    """Makes another orchestrator the owner of the run."""

    def operation() -> Steps[None]:
        yield Query("UPDATE runs SET owner = 'other', fence = fence + 1, lease_until = 9e9 WHERE id = ?", (run_id,))

    await database.write(operation)


async def test_run_stops_when_its_lease_is_lost_and_watchers_continue(database: Database, stages: Stages) -> None:
    stopped = asyncio.Event()

    async def work(_: RunLog) -> Failure | None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return None

    stages.work = work
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        events = runs.watch(run_id, 0)
        assert [(await anext(events)).sequence for _ in range(2)] == [1, 2]
        await take_away(database, run_id)
        await stopped.wait()
        last = RunEvent(run_id=run_id, sequence=3, run_ended=event_pb2.RunEnded(state=run_pb2.RUN_STATE_COMPLETED))
        await FaultyJournal(database, "other").append(run_id, 2, [last], run_pb2.RUN_STATE_COMPLETED)
        assert [event.sequence async for event in events] == [3]


async def test_run_lost_during_its_answer_is_not_ended_by_the_earlier_owner(database: Database, stages: Stages) -> None:
    answering, is_lost = asyncio.Event(), asyncio.Event()
    logs: list[RunLog] = []

    async def answer(run: RunLog) -> Failure | None:
        logs.append(run)
        answering.set()
        await is_lost.wait()
        run.emit(RunEvent(answer_chunk=event_pb2.AnswerChunk(text="too late")))
        await asyncio.Event().wait()
        return None

    stages.answer = answer
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        run_id = await runs.create(SPEC)
        watching = asyncio.create_task(watch_events(runs, run_id))
        await answering.wait()
        await take_away(database, run_id)
        is_lost.set()
        async for _ in logs[0].feed.after(0):
            pass  # until the run is released
        watching.cancel()
        row = await journal.row(run_id, "default")
        assert row.owner == "other"
        assert row.fence == 2
        assert not row.has_ended
        assert not any(event.HasField("answer_chunk") for event in await journal.events(run_id, 0))


async def test_run_claimed_again_after_its_loss_can_be_cancelled(database: Database, stages: Stages) -> None:
    stages.work = work_forever
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await stages.running.wait()
        stages.running.clear()
        await take_away(database, run_id)
        await Journal(database, "other", 60).release()
        await stages.running.wait()  # again, by this process, under a new fence
        await runs.cancel(run_id)
        events = await watch_to_end(runs, run_id)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_CANCELLED


async def test_run_is_not_cancelled_when_its_orchestrator_stops(database: Database, stages: Stages) -> None:
    class Context:
        async def write(self, event: RunEvent) -> None:
            return

    stages.work = work_forever
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        request = CreateRunRequest(spec=RunSpec(request="do it", on_disconnect=run_pb2.ON_DISCONNECT_CANCEL))
        calling = asyncio.create_task(serving(runs, database).CreateRun(request, Context()))
        await stages.running.wait()
        await runs.release_all()
        with pytest.raises(Unavailable, match="stopping"):
            await calling
        assert await journal.commands() == []
        assert await Journal(database, "other", 60).overdue()


@pytest.mark.parametrize("error", [JOURNAL_UNAVAILABLE, KeyError("an unexpected error")])
async def test_run_whose_lease_cannot_be_renewed_is_released_and_resumed(
    database: Database, stages: Stages, error: Exception
) -> None:
    stopped = asyncio.Event()

    async def work(_: RunLog) -> Failure | None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return None

    stages.work = work
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        run_id = await runs.create(SPEC)
        await stages.running.wait()
        stages.running.clear()
        journal.errors["renew"] = [error] * 1000
        await stopped.wait()
        stages.work = None
        journal.errors.clear()
        events = await watch_to_end(runs, run_id)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED
    assert any(event.HasField("taken_over") for event in events)


async def test_run_released_by_a_stopping_orchestrator_can_be_claimed_at_once(
    database: Database, stages: Stages
) -> None:
    stages.work = work_forever
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await stages.running.wait()
    other = Journal(database, "other", 60)
    assert [row.id for row in await other.claim(10)] == [run_id]


async def test_leases_are_renewed_while_a_claimed_run_loads_slowly(database: Database, stages: Stages) -> None:
    reading, may_load = asyncio.Event(), asyncio.Event()
    renewals: asyncio.Queue[Collection[str]] = asyncio.Queue()

    class SlowJournal(FaultyJournal):
        async def events(self, run_id: str, after: int, limit: int = 500) -> list[RunEvent]:
            if run_id == released:
                reading.set()
                await may_load.wait()
            return await super().events(run_id, after, limit)

        def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
            if reading.is_set():
                renewals.put_nowait(list(run_ids))
            return super().renew(run_ids)

    stages.work = work_forever
    async with running(FaultyJournal(database, "first"), stages) as runs:
        released = await runs.create(SPEC)
        await stages.running.wait()
    stages.running.clear()
    async with running(SlowJournal(database), stages) as runs:
        await reading.wait()
        own = await runs.create(SPEC)
        await stages.running.wait()
        for _ in range(5):  # longer than a lease
            await renewals.get()
        assert own not in [row.id for row in await Journal(database, "other", 60).claim(10)]
        may_load.set()


async def test_run_is_released_when_renewals_hang(database: Database, stages: Stages) -> None:
    stopped, hangs = asyncio.Event(), True

    class HangingJournal(FaultyJournal):
        def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
            if hangs and run_ids:
                return asyncio.get_running_loop().create_future()
            return super().renew(run_ids)

    async def work(_: RunLog) -> Failure | None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return None

    stages.work = work
    async with running(HangingJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await stopped.wait()
        hangs, stages.work = False, None
        assert (await watch_to_end(runs, run_id))[-1].HasField("run_ended")


async def test_seconds_left_are_independent_of_the_system_clock(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, first = Caller(tenant="default"), RunEvent(sequence=1, run_accepted=RunAccepted())
    caller.deadline.FromSeconds(int(time.time()) + 600)
    run = RunLog(FaultyJournal(database), "run", 1, caller, [first])
    hour_later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: hour_later)
    assert 500 < run.seconds_left <= 600


async def test_cancelled_write_does_not_mark_the_journal_as_available(database: Database) -> None:
    journal = FaultyJournal(database)
    journal.accepting.clear()
    journal.cancel("run").cancel()
    await asyncio.sleep(0)
    assert not journal.accepting.is_set()
