"""Fake planner, tasks and responder of runs, and a journal with injected errors."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, cast

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.v1 import plan_pb2, run_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RunSpec
from protos.hugginggpt.v1.task_pb2 import Task
from services.common.database import Database
from services.common.errors import Unavailable
from services.orchestrator.batches.service import BatchService
from services.orchestrator.journal import Journal
from services.orchestrator.journal.artifacts import ArtifactHolds
from services.orchestrator.journal.batches import EndedBatches
from services.orchestrator.journal.runs import NewRun, StoredRun
from services.orchestrator.leases import LeaseManager
from services.orchestrator.notifier import ChangeNotifier
from services.orchestrator.pipelines.service import PipelineService
from services.orchestrator.runs.executor import RunExecutor
from services.orchestrator.runs.lease_source import RunLeaseSource
from services.orchestrator.runs.planner_client import PlannerClient
from services.orchestrator.runs.responder_client import ResponderClient
from services.orchestrator.runs.run_limiter import RunLimiter
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.service import CommandForwarder, PipelineSource, RunService
from services.orchestrator.runs.task_executor import TaskDependencies
from services.orchestrator.servicer import OrchestratorServicer

SPEC = RunSpec(request="do it")

LEASE_SECONDS = 0.3


class Stages:
    """Planner, tasks and responder of runs, as functions that tests set; tasks are not executed."""

    def __init__(self) -> None:
        self.executed: list[list[run_pb2.Turn]] = []
        self.running = asyncio.Event()
        self.work: Callable[[RunLog], Awaitable[Failure | None]] | None = None
        self.answer: Callable[[RunLog], Awaitable[Failure | None]] | None = None

    async def check(self, request: planner_pb2.PlanRequest) -> plan_pb2.Plan:
        return request.goal.check.draft

    async def fetch(self, run: RunLog, turns: Sequence[run_pb2.Turn], *_: object) -> Failure | None:
        self.executed.append(list(turns))
        self.running.set()
        run.emit(RunEvent(plan_note=plan_pb2.Note(kind=plan_pb2.NOTE_KIND_CHAT)))
        return await self.work(run) if self.work else None

    @asynccontextmanager
    async def open_executor(self, *_: object) -> AsyncIterator[Self]:
        yield self

    def add(self, task: Task) -> None:
        """Takes a planned task."""

    async def wait_failed(self) -> bool:
        return False

    async def respond(self, run: RunLog, *_: object) -> Failure | None:
        return await self.answer(run) if self.answer else None


class FaultyJournal(Journal):
    """A journal with injected errors that signals calls of `accept`."""

    def __init__(self, database: Database, owner: str = "me") -> None:
        super().__init__(database, owner, LEASE_SECONDS)
        self.accept_called = asyncio.Event()
        self.errors: dict[str, list[Exception]] = {}
        self.writes: list[asyncio.Future[str]] = []
        """Of new runs."""

    def accept(self, run: NewRun) -> "asyncio.Future[str]":
        self.accept_called.set()
        self.writes.append(super().accept(run))
        return self.writes[-1]

    async def events(self, run_id: str, after: int, limit: int = 500) -> list[RunEvent]:
        self._raise_error("events")
        return await super().events(run_id, after, limit)

    async def conversation(self, run_id: str, tenant: str, max_runs: int) -> list[StoredRun]:
        self._raise_error("conversation")
        return await super().conversation(run_id, tenant, max_runs)

    def append(self, *args: Any, **changes: Any) -> "asyncio.Future[None]":
        self._raise_error("append")
        return super().append(*args, **changes)

    def claim(self, limit: int, held: Collection[str] = ()) -> "asyncio.Future[list[Any]]":
        self._raise_error("claim")
        return super().claim(limit, held)

    def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
        self._raise_error("renew")
        return super().renew(run_ids)

    async def release(self) -> None:
        self._raise_error("release")
        await super().release()

    def _raise_error(self, what: str) -> None:
        if self.errors.get(what):
            raise self.errors[what].pop(0)


JOURNAL_UNAVAILABLE = Unavailable("the disk is gone")


async def work_forever(_: RunLog) -> Failure | None:
    await asyncio.Event().wait()
    return None


@asynccontextmanager
async def running(journal: Journal, stages: Stages) -> AsyncIterator[RunService]:
    active: dict[str, RunLog] = {}
    limiter = RunLimiter(active, max_runs=10, max_bytes=10_000_000)
    notifier = ChangeNotifier()
    planner = cast("PlannerClient", stages)
    executor = RunExecutor(journal, planner, cast("TaskDependencies", stages), cast("ResponderClient", stages))
    leases = LeaseManager(RunLeaseSource(journal, limiter, notifier), executor, active, lease_seconds=LEASE_SECONDS)
    runs = RunService(
        journal=journal,
        leases=leases,
        limiter=limiter,
        notifier=notifier,
        planner=planner,
        pipelines=cast("PipelineSource", None),
        forwarder=CommandForwarder(""),
        run_seconds=60,
    )
    async with asyncio.timeout(30), runs:
        yield runs


def serving(runs: RunService, database: Database) -> OrchestratorServicer:
    """A servicer without pipelines and batches."""
    return OrchestratorServicer(
        runs, ArtifactHolds(database), cast("PipelineService", None), cast("BatchService", None), EndedBatches(database)
    )


async def watch_events(runs: RunService, run_id: str) -> list[RunEvent]:
    return [event async for event in runs.watch(run_id, 0)]


async def watch_to_end(runs: RunService, run_id: str) -> list[RunEvent]:
    """Watches a run to its end, and watches again if another orchestrator takes it over."""
    while True:
        with contextlib.suppress(Unavailable):
            return await watch_events(runs, run_id)
        await asyncio.sleep(0)
