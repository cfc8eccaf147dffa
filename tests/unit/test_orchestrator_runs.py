"""Runs and their journal, with stand-ins for what they go through."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from protos.hugginggpt.v1 import types_pb2 as types
from protos.hugginggpt.v1.orchestrator_pb2 import RunRequest
from protos.hugginggpt.v1.types_pb2 import Failure, RunEvent, RunSpec
from services.orchestrator.journal import Journal
from services.orchestrator.live import LiveRun
from services.orchestrator.pipeline import Pipeline
from services.orchestrator.runs import Runs
from services.orchestrator.servicer import OrchestratorServicer
from services.orchestrator.tables import MIGRATIONS, SCHEMA, NewRun
from services.runtime.database import Database, opened
from services.runtime.errors import Unavailable

SPEC = RunSpec(request="do it")

LEASE_SECONDS = 0.3


class Stages:
    """What runs go through: each stage is a function of the test's."""

    def __init__(self) -> None:
        self.executed: list[list[types.Turn]] = []
        self.running = asyncio.Event()
        self.work: Callable[[LiveRun], Awaitable[Failure | None]] | None = None
        self.answer: Callable[[LiveRun], Awaitable[Failure | None]] | None = None

    async def execute(self, run: LiveRun, turns: Sequence[types.Turn]) -> Failure | None:
        self.executed.append(list(turns))
        self.running.set()
        run.emit(RunEvent(plan_note=types.Note(kind=types.NOTE_KIND_CHAT)))
        return await self.work(run) if self.work else None

    async def respond(self, run: LiveRun, turns: Sequence[types.Turn], failure: Failure | None) -> Failure | None:
        return await self.answer(run) if self.answer else None


class Troubled(Journal):
    """A journal that does not always answer, and tells when it is asked to accept."""

    def __init__(self, database: Database, owner: str = "me") -> None:
        super().__init__(database, owner, LEASE_SECONDS)
        self.accepting = asyncio.Event()
        self.trouble: dict[str, list[Exception]] = {}

    def accept(self, run: NewRun) -> "asyncio.Future[str]":
        self.accepting.set()
        return super().accept(run)

    async def events(self, run_id: str, after: int, limit: int = 500) -> list[RunEvent]:
        self._troubles("events")
        return await super().events(run_id, after, limit)

    def append(self, *args: Any) -> "asyncio.Future[None]":
        self._troubles("append")
        return super().append(*args)

    def claim(self, limit: int) -> "asyncio.Future[list[Any]]":
        self._troubles("claim")
        return super().claim(limit)

    def release(self) -> "asyncio.Future[None]":
        self._troubles("release")
        return super().release()

    def _troubles(self, what: str) -> None:
        if self.trouble.get(what):
            raise self.trouble[what].pop(0)


GONE = Unavailable("the disk is gone")


async def forever(_: LiveRun) -> Failure | None:
    await asyncio.Event().wait()
    return None


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(tmp_path / "journal.sqlite", SCHEMA, MIGRATIONS) as kept:
        yield kept


@pytest.fixture
def stages() -> Stages:
    return Stages()


@asynccontextmanager
async def running(journal: Journal, stages: Stages) -> AsyncIterator[Runs]:
    pipeline = cast("Pipeline", stages)
    async with (
        asyncio.timeout(10),
        Runs(journal, pipeline, max_runs=10, run_seconds=60, lease_seconds=LEASE_SECONDS) as runs,
    ):
        yield runs


async def watched(runs: Runs, run_id: str) -> list[RunEvent]:
    return [event async for event in runs.watch(run_id, 0)]


async def to_the_end(runs: Runs, run_id: str) -> list[RunEvent]:
    """Watches again, as a caller does, where the run goes on elsewhere."""
    while True:
        with contextlib.suppress(Unavailable):
            return await watched(runs, run_id)
        await asyncio.sleep(0)


async def test_a_run_whose_caller_leaves_while_it_is_kept_is_driven(database: Database, stages: Stages) -> None:
    journal = Troubled(database)
    async with running(journal, stages) as runs:
        accepting = asyncio.create_task(runs.accept(SPEC))
        await journal.accepting.wait()
        accepting.cancel()
        await asyncio.wait([accepting])
        assert accepting.cancelled()
        await stages.running.wait()
        (row,) = await journal.rows("default", limit=10)
        assert (await watched(runs, row.id))[-1].HasField("run_ended")


async def test_a_run_whose_start_the_journal_spoils_is_taken_up_again(database: Database, stages: Stages) -> None:
    journal = Troubled(database)
    async with running(journal, stages) as runs:
        parent = await runs.accept(SPEC)
        await watched(runs, parent)
        journal.trouble["events"] = [GONE]
        run_id = await runs.accept(RunSpec(request="and then", parent_run_id=parent))
        events = await to_the_end(runs, run_id)
    assert any(event.HasField("taken_over") for event in events)
    assert events[-1].run_ended.state == types.RUN_STATE_COMPLETED


async def test_a_run_that_cannot_be_read_is_taken_over_later(database: Database, stages: Stages) -> None:
    async with running(Troubled(database, "first"), stages) as runs:
        stages.work = forever
        run_id = await runs.accept(SPEC)
        await stages.running.wait()
    stages.work, journal = None, Troubled(database, "second")
    journal.trouble["events"] = [ValueError("not an event")]
    stages.running.clear()
    async with running(journal, stages) as runs:
        await stages.running.wait()
        assert (await to_the_end(runs, run_id))[-1].run_ended.state == types.RUN_STATE_COMPLETED
        assert journal.trouble["events"] == []


async def test_runs_are_kept_though_a_heartbeat_breaks(database: Database, stages: Stages) -> None:
    journal = Troubled(database)
    journal.trouble["claim"] = [ZeroDivisionError()]
    async with running(Troubled(database, "first"), stages) as runs:
        stages.work = forever
        run_id = await runs.accept(SPEC)
        await stages.running.wait()
    stages.work = None
    async with running(journal, stages) as runs:
        assert (await to_the_end(runs, run_id))[-1].run_ended.state == types.RUN_STATE_COMPLETED


async def test_a_conversation_whose_beginning_was_deleted_goes_on(database: Database, stages: Stages) -> None:
    async with running(Troubled(database), stages) as runs:
        first = await runs.accept(RunSpec(request="one"))
        await watched(runs, first)
        second = await runs.accept(RunSpec(request="two", parent_run_id=first))
        await watched(runs, second)
        await runs.delete(first)
        third = await runs.accept(RunSpec(request="three", parent_run_id=second))
        events = await watched(runs, third)
    assert events[-1].run_ended.state == types.RUN_STATE_COMPLETED
    assert [turn.text for turn in stages.executed[-1]] == ["two", "", "three"]


@pytest.mark.parametrize("stage", ["work", "answer"])
async def test_a_bug_ends_its_run_and_says_nothing(database: Database, stages: Stages, stage: str) -> None:
    async def broken(_: LiveRun) -> Failure | None:
        raise ExceptionGroup("steps", [ZeroDivisionError("secret")])

    setattr(stages, stage, broken)
    async with running(Troubled(database), stages) as runs:
        ending = (await watched(runs, await runs.accept(SPEC)))[-1].run_ended
    assert (ending.failure.reason, ending.failure.message) == ("INTERNAL", "internal error")
    assert ending.state in {types.RUN_STATE_FAILED, types.RUN_STATE_INCOMPLETE}


async def stolen(database: Database, run_id: str) -> None:
    """Another orchestrator takes the run."""
    await database.write(
        lambda connection: (
            connection.execute(
                "UPDATE runs SET owner = 'thief', fence = fence + 1, lease_until = 9e9 WHERE id = ?", (run_id,)
            ).rowcount
        )
    )


async def test_a_run_that_another_has_taken_is_let_go_of(database: Database, stages: Stages) -> None:
    stopped = asyncio.Event()

    async def work(_: LiveRun) -> Failure | None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return None

    stages.work = work
    async with running(Troubled(database), stages) as runs:
        run_id = await runs.accept(SPEC)
        events = runs.watch(run_id, 0)
        assert [(await anext(events)).sequence for _ in range(2)] == [1, 2]
        await stolen(database, run_id)
        await stopped.wait()
        with pytest.raises(Unavailable, match="no longer owns"):
            await anext(events)


async def test_a_run_lost_while_it_is_answered_is_not_ended_here(database: Database, stages: Stages) -> None:
    answering, told = asyncio.Event(), asyncio.Event()

    async def answer(run: LiveRun) -> Failure | None:
        answering.set()
        await told.wait()
        run.emit(RunEvent(answer_chunk=types.AnswerChunk(text="too late")))
        await asyncio.Event().wait()
        return None

    stages.answer = answer
    journal = Troubled(database)
    async with running(journal, stages) as runs:
        run_id = await runs.accept(SPEC)
        watching = asyncio.create_task(watched(runs, run_id))
        await answering.wait()
        await stolen(database, run_id)
        told.set()
        with pytest.raises(Unavailable, match="no longer owns"):
            await watching
        row = await journal.row(run_id, "default")
        assert (row.owner, row.fence, row.ended) == ("thief", 2, False)
        assert not any(event.HasField("answer_chunk") for event in await journal.events(run_id, 0))


async def test_a_run_that_was_lost_and_comes_back_can_be_cancelled(database: Database, stages: Stages) -> None:
    stages.work = forever
    async with running(Troubled(database), stages) as runs:
        run_id = await runs.accept(SPEC)
        await stages.running.wait()
        stages.running.clear()
        await stolen(database, run_id)
        await Journal(database, "thief", 60).release()
        await stages.running.wait()  # again, by this process, under a new fence
        await runs.cancel(run_id)
        events = await to_the_end(runs, run_id)
    assert events[-1].run_ended.state == types.RUN_STATE_CANCELLED


async def test_stopping_does_not_wait_for_a_journal_that_is_gone(database: Database, stages: Stages) -> None:
    stages.work = forever
    journal = Troubled(database)
    async with running(journal, stages) as runs:
        run_id = await runs.accept(SPEC)
        await stages.running.wait()
        journal.trouble = {"append": [GONE] * 1000, "release": [GONE]}
        await runs.cancel(run_id)


async def test_a_run_kept_while_this_process_stops_is_for_another(database: Database, stages: Stages) -> None:
    journal = Troubled(database)
    async with running(journal, stages) as runs:
        accepting = asyncio.create_task(runs.accept(SPEC))
        await journal.accepting.wait()
    run_id = await accepting
    assert not stages.executed
    async with running(Troubled(database, "second"), stages) as runs:
        assert (await to_the_end(runs, run_id))[-1].run_ended.state == types.RUN_STATE_COMPLETED


async def test_a_run_that_goes_on_elsewhere_is_not_cancelled_by_the_end_of_its_stream(
    database: Database, stages: Stages
) -> None:
    class Context:
        async def write(self, event: RunEvent) -> None:
            return

    stages.work = forever
    journal = Troubled(database)
    async with running(journal, stages) as runs:
        request = RunRequest(spec=RunSpec(request="do it", on_disconnect=types.ON_DISCONNECT_CANCEL))
        calling = asyncio.create_task(OrchestratorServicer(runs).Run(request, Context()))
        await stages.running.wait()
        (row,) = await journal.rows("default", limit=10)
        await stolen(database, row.id)
        with pytest.raises(Unavailable, match="no longer owns"):
            await calling
        assert await Journal(database, "thief", 60).commands() == []


@pytest.mark.parametrize("after", [0, -3])
async def test_a_live_run_is_watched_from_its_first_event(database: Database, stages: Stages, after: int) -> None:
    async with running(Troubled(database), stages) as runs:
        run_id = await runs.accept(SPEC)
        events = [event async for event in runs.watch(run_id, after)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
