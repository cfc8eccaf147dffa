"""Runs that another orchestrator takes."""

import asyncio

import pytest

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.v1 import event_pb2, run_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.database import Database, Query, Steps
from services.common.errors import Unavailable
from services.orchestrator.journal import Journal
from services.orchestrator.runs.run_log import RunLog
from tests.support.run_stages import GONE, SPEC, FaultyJournal, Stages, forever, running, serving, to_the_end, watched


async def stolen(database: Database, run_id: str) -> None:
    """Another orchestrator takes the run."""

    def operation() -> Steps[None]:
        yield Query("UPDATE runs SET owner = 'thief', fence = fence + 1, lease_until = 9e9 WHERE id = ?", (run_id,))

    await database.write(operation)


async def test_a_run_that_another_has_taken_is_let_go_of(database: Database, stages: Stages) -> None:
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
        await stolen(database, run_id)
        await stopped.wait()
        last = RunEvent(run_id=run_id, sequence=3, run_ended=event_pb2.RunEnded(state=run_pb2.RUN_STATE_COMPLETED))
        await FaultyJournal(database, "thief").append(run_id, 2, [last], run_pb2.RUN_STATE_COMPLETED)
        assert [event.sequence async for event in events] == [3]


async def test_a_run_lost_while_it_is_answered_is_not_ended_here(database: Database, stages: Stages) -> None:
    answering, told = asyncio.Event(), asyncio.Event()
    logs: list[RunLog] = []

    async def answer(run: RunLog) -> Failure | None:
        logs.append(run)
        answering.set()
        await told.wait()
        run.emit(RunEvent(answer_chunk=event_pb2.AnswerChunk(text="too late")))
        await asyncio.Event().wait()
        return None

    stages.answer = answer
    journal = FaultyJournal(database)
    async with running(journal, stages) as runs:
        run_id = await runs.create(SPEC)
        watching = asyncio.create_task(watched(runs, run_id))
        await answering.wait()
        await stolen(database, run_id)
        told.set()
        async for _ in logs[0].feed.after(0):
            pass  # until the run is released
        watching.cancel()
        row = await journal.row(run_id, "default")
        assert (row.owner, row.fence, row.has_ended) == ("thief", 2, False)
        assert not any(event.HasField("answer_chunk") for event in await journal.events(run_id, 0))


async def test_a_run_that_was_lost_and_comes_back_can_be_cancelled(database: Database, stages: Stages) -> None:
    stages.work = forever
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await stages.running.wait()
        stages.running.clear()
        await stolen(database, run_id)
        await Journal(database, "thief", 60).release()
        await stages.running.wait()  # again, by this process, under a new fence
        await runs.cancel(run_id)
        events = await to_the_end(runs, run_id)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_CANCELLED


async def test_a_run_is_not_cancelled_because_its_orchestrator_stops(database: Database, stages: Stages) -> None:
    class Context:
        async def write(self, event: RunEvent) -> None:
            return

    stages.work = forever
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


@pytest.mark.parametrize("error", [GONE, KeyError("an unexpected error")])
async def test_runs_whose_leases_cannot_be_renewed_are_let_go_of_and_taken_up_again(
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
        events = await to_the_end(runs, run_id)
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED
    assert any(event.HasField("taken_over") for event in events)


async def test_a_run_in_the_middle_of_being_kept_is_handed_over_too(database: Database, stages: Stages) -> None:
    stages.work = forever
    async with running(FaultyJournal(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await stages.running.wait()
    other = Journal(database, "other", 60)
    assert [row.id for row in await other.claim(10)] == [run_id]
