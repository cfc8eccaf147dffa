"""Concurrent approvals of a plan, through one orchestrator or several."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from protos.hugginggpt.v1 import event_pb2, plan_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.database import Database
from services.common.errors import FailedPrecondition
from services.orchestrator.journal.runs import RunRow
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.service import RunService
from tests.support.run_stages import FaultyJournal, Stages, running, watch_to_end, work_forever


@pytest.fixture
def planned(stages: Stages) -> Stages:
    """A plan of one task; after the approval the run never ends if its request is "for ever"."""

    async def work(run: RunLog) -> Failure | None:
        if run.fold.is_approved:
            return await work_forever(run) if run.fold.run.spec.request == "for ever" else None
        planned = event_pb2.TaskPlanned(task=task_pb2.Task(id=1, task="summarization"))
        run.emit(RunEvent(task_id=1, task_planned=planned))
        run.emit(RunEvent(plan_completed=event_pb2.PlanCompleted(tasks=1)))
        return None

    stages.work = work
    return stages


async def waiting(runs: RunService, request: str = "do it") -> str:
    """Creates a run whose plan waits for approval."""
    run_id = await runs.create(RunSpec(request=request, mode=run_pb2.RUN_MODE_APPROVE))
    async for event in runs.watch(run_id, 0):
        if event.HasField("approval_requested"):
            return run_id
    raise AssertionError


def plan(number: int) -> plan_pb2.Plan:
    return plan_pb2.Plan(tasks=[task_pb2.Task(id=1, task=f"task-{number}")])


@pytest.mark.parametrize("replicas", [1, 2])
async def test_one_of_several_concurrent_approvals_is_applied_and_the_others_are_refused(
    database: Database, planned: Stages, replicas: int
) -> None:
    async with AsyncExitStack() as stack:
        several = [
            await stack.enter_async_context(running(FaultyJournal(database, f"owner-{number}"), planned))
            for number in range(replicas)
        ]
        for _ in range(10):
            run_id = await waiting(several[0])
            results = await asyncio.gather(
                *(runs.approve(run_id, plan(number)) for number, runs in enumerate(several * (4 // replicas))),
                return_exceptions=True,
            )
            (applied,) = [number for number, result in enumerate(results) if result is None]
            assert all(isinstance(result, FailedPrecondition) for result in results if result)
            events = await watch_to_end(several[-1], run_id)
            (approved,) = [event.plan_approved for event in events if event.HasField("plan_approved")]
            assert approved.plan == plan(applied)
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_repeated_approval_is_stored_once(database: Database, planned: Stages) -> None:
    async with running(FaultyJournal(database), planned) as runs:
        run_id = await waiting(runs)
        journal = FaultyJournal(database, "other")
        assert await journal.approve(run_id, b"")
        assert await journal.approve(run_id, b"")
        assert not await journal.approve(run_id, b"another")
        await watch_to_end(runs, run_id)
        assert not await journal.approve(run_id, b"")


async def test_run_approved_and_cancelled_concurrently_ends_cancelled(database: Database, planned: Stages) -> None:
    async with (
        running(FaultyJournal(database), planned) as runs,
        running(FaultyJournal(database, "other"), planned) as other,
    ):
        for _ in range(10):
            run_id = await waiting(runs, "for ever")
            await asyncio.gather(runs.cancel(run_id), other.approve(run_id, None), return_exceptions=True)
            events = await watch_to_end(runs, run_id)
            assert events[-1].run_ended.state == run_pb2.RUN_STATE_CANCELLED


async def test_approved_run_continues_after_the_approving_call_is_cancelled(
    database: Database, planned: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.run_stages.LEASE_SECONDS", 60.0)  # no other process would claim it soon
    claiming, may_continue = asyncio.Event(), asyncio.Event()

    class Slow(FaultyJournal):
        def claim(self, *args: object, **more: object) -> "asyncio.Future[list[RunRow]]":
            async def claimed() -> list[RunRow]:
                rows: list[RunRow] = await super(Slow, self).claim(*args, **more)  # type: ignore[arg-type]
                if rows:
                    claiming.set()
                    await may_continue.wait()
                return rows

            return asyncio.ensure_future(claimed())

    async with running(Slow(database), planned) as runs:
        run_id = await waiting(runs)
        approving = asyncio.create_task(runs.approve(run_id, None))
        await claiming.wait()
        approving.cancel()
        await asyncio.wait([approving])
        may_continue.set()
        assert (await watch_to_end(runs, run_id))[-1].HasField("run_ended")
