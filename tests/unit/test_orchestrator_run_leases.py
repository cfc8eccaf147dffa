"""How runs stay with their owner, whatever holds it up."""

import asyncio
import time
from collections.abc import Collection

import pytest

from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunAccepted, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from services.common.database import Database
from services.orchestrator.journal import Journal
from services.orchestrator.runs.run_log import RunLog
from tests.support.run_stages import SPEC, FaultyJournal, Stages, forever, running, to_the_end


async def test_runs_are_kept_while_others_are_taken_up_slowly(database: Database, stages: Stages) -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()
    renewals: asyncio.Queue[Collection[str]] = asyncio.Queue()

    class Slow(FaultyJournal):
        async def events(self, run_id: str, after: int, limit: int = 500) -> list[RunEvent]:
            if run_id == left:
                reading.set()
                await go_on.wait()
            return await super().events(run_id, after, limit)

        def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
            if reading.is_set():
                renewals.put_nowait(list(run_ids))
            return super().renew(run_ids)

    stages.work = forever
    async with running(FaultyJournal(database, "first"), stages) as runs:
        left = await runs.create(SPEC)
        await stages.running.wait()
    stages.running.clear()
    async with running(Slow(database), stages) as runs:
        await reading.wait()
        mine = await runs.create(SPEC)
        await stages.running.wait()
        for _ in range(5):  # longer than a lease
            await renewals.get()
        assert mine not in [row.id for row in await Journal(database, "other", 60).claim(10)]
        go_on.set()


async def test_runs_are_let_go_of_when_the_journal_does_not_even_refuse(database: Database, stages: Stages) -> None:
    stopped, silent = asyncio.Event(), True

    class Silent(FaultyJournal):
        def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
            if silent and run_ids:
                return asyncio.get_running_loop().create_future()
            return super().renew(run_ids)

    async def work(_: RunLog) -> Failure | None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return None

    stages.work = work
    async with running(Silent(database), stages) as runs:
        run_id = await runs.create(SPEC)
        await stopped.wait()
        silent, stages.work = False, None
        assert (await to_the_end(runs, run_id))[-1].HasField("run_ended")


async def test_time_left_does_not_follow_the_systems_clock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, first = Caller(tenant="default"), RunEvent(sequence=1, run_accepted=RunAccepted())
    caller.deadline.FromSeconds(int(time.time()) + 600)
    run = RunLog(FaultyJournal(database), "run", 1, caller, [first])
    hour_later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: hour_later)
    assert 500 < run.seconds_left <= 600


async def test_a_wait_that_is_given_up_does_not_say_that_the_journal_is_back(database: Database) -> None:
    journal = FaultyJournal(database)
    journal.accepting.clear()
    journal.cancel("run").cancel()
    await asyncio.sleep(0)
    assert not journal.accepting.is_set()
