"""Executes the tasks of a run: selects a model once a task is planned, and calls it once its inputs are available."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import structlog
from google.rpc import code_pb2

from protos.hugginggpt.internal.v1.selector_pb2 import SelectResponse
from protos.hugginggpt.v1.event_pb2 import RunEvent, TaskEnded
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import (
    TASK_STATE_FAILED,
    TASK_STATE_REUSED,
    TASK_STATE_SKIPPED,
    TASK_STATE_SUCCEEDED,
    TaskResult,
    TaskState,
)
from protos.hugginggpt.v1.task_pb2 import DETERMINISM_EXACT, DETERMINISM_NUMERIC, Task, TaskSpec
from services.common.artifacts import ArtifactStore
from services.common.errors import DeadlineExceeded, NotFound, ServiceError, Unavailable, to_failure
from services.orchestrator import metrics
from services.orchestrator.dag import Dag
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.attempts import RetryBudget, TaskRequest
from services.orchestrator.experts.client import ExpertClient
from services.orchestrator.journal import Journal
from services.orchestrator.journal.artifacts import digests
from services.orchestrator.journal.events import Memo
from services.orchestrator.runs import spans
from services.orchestrator.runs.arguments import (
    apply_seed,
    choose_seed,
    dependencies,
    input_digest,
    resolve_arguments,
)
from services.orchestrator.runs.result import rename_duplicates
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.selector_client import SelectorClient

log = structlog.get_logger(__name__)

_TEMPORARY = (NotFound, Unavailable, DeadlineExceeded)
"""Errors of a selection while there is no candidate for a task, or no selector."""


_REPEATABLE = frozenset({DETERMINISM_EXACT, DETERMINISM_NUMERIC})


class ResultCache:
    """Results that can replace a call: of deterministic tasks, by models of a known commit.

    Args:
        journal: stores the results.
        store: stores the artifacts they refer to.
    """

    def __init__(self, journal: Journal, store: ArtifactStore) -> None:
        self._journal = journal
        self._store = store

    async def lookup(self, run: RunLog, spec: TaskSpec, by: Candidate, digest: str) -> TaskResult | None:
        """The stored result of this call with all its artifacts; None if there is none or the run bypasses reuse."""
        if run.fold.run.spec.bypass_memo or not _is_reusable(spec, by):
            return None
        try:
            known = await self._journal.memo(run.caller.tenant, _key(by, digest))
            return known if known and await self._is_complete(run.caller.tenant, known) else None
        except Unavailable as error:
            log.warning("earlier results unavailable", error=error.message)
            return None

    async def _is_complete(self, tenant: str, result: TaskResult) -> bool:
        """Whether its artifacts still exist: an operator may have emptied the store."""
        return all([await self._store.contains(tenant, sha256) for sha256 in set(digests(result))])


@dataclass(frozen=True)
class TaskDependencies:
    """What the tasks of all runs share."""

    selector: SelectorClient
    experts: ExpertClient
    results: ResultCache

    @asynccontextmanager
    async def open_executor(self, run: RunLog, deadline: Deadline) -> "AsyncIterator[TaskExecutor]":
        """Executes the tasks of a run, at first those planned earlier; leaving the block waits for the last of them."""
        async with asyncio.TaskGroup() as selections:
            executor = TaskExecutor(run, self, selections, deadline)
            async with executor.dag:
                executor.restore()
                yield executor


class TaskExecutor:
    """The tasks of one run; created by TaskDependencies.open_executor().

    Args:
        run: receives the events.
        shared: with the other runs.
        selections: task group of the selections.
        deadline: of the run.
    """

    def __init__(
        self, run: RunLog, shared: TaskDependencies, selections: asyncio.TaskGroup, deadline: Deadline
    ) -> None:
        self._run = run
        self._shared = shared
        self._selections = selections
        self._deadline = deadline
        self._inputs = {item.name: item.value for item in run.fold.run.spec.inputs}
        self._tasks: dict[int, Task] = {}
        self._candidates: dict[int, asyncio.Task[SelectResponse | ServiceError]] = {}
        """Selections of the tasks that depend on others, made while they wait."""
        self._restored: dict[int, TaskResult] = {}
        self._retries = RetryBudget()
        self.dag = Dag(self._step)
        self._task_failed = asyncio.Event()
        """Set when a task has finally failed."""

    def restore(self) -> None:
        """Adds the tasks planned earlier; ended ones keep their results if their inputs are unchanged."""
        before = dict(self._run.fold.results())
        for status in list(self._run.fold.run.tasks):
            task = status.task
            if task.id in before and self._is_current(task, before[task.id]):
                self._restored[task.id] = before[task.id]
                self._tasks[task.id] = task
                self.dag.add_ended(task.id, before[task.id])
            else:
                self.add(task)
        if self._run.fold.failed:
            self._task_failed.set()

    def add(self, task: Task) -> None:
        """Executes a task as soon as its dependencies have ended."""
        self._tasks[task.id] = task
        needs = dependencies(task)
        if needs:  # otherwise the step begins with the selection
            self._candidates[task.id] = self._selections.create_task(self._select(task), name=f"select-{task.id}")
        self.dag.add(task.id, needs)

    async def wait_ended(self, seconds: float | None = None) -> None:
        """Waits until all tasks have ended, or until the time has passed."""
        await self.dag.wait_ended(seconds)

    async def wait_failed(self) -> bool:
        """Waits until a task has finally failed, or all tasks have ended; returns whether one has failed."""
        all_ended = asyncio.create_task(self.dag.wait_ended(), name=f"ended-{self._run.id}")
        failed = asyncio.create_task(self._task_failed.wait(), name=f"failed-{self._run.id}")
        try:
            await asyncio.wait((all_ended, failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            all_ended.cancel()
            failed.cancel()
        return self._task_failed.is_set()

    def _is_current(self, task: Task, result: TaskResult) -> bool:
        if result.HasField("failure"):
            return True
        try:
            request = resolve_arguments(task, self._inputs, {each: self._restored[each] for each in dependencies(task)})
        except (KeyError, ServiceError):  # an input of the result no longer exists
            return False
        apply_seed(request, result.seed)
        is_current = input_digest(request) == result.input_digest
        if not is_current:
            log.warning("task runs again: its stored result has other inputs", task_id=task.id)
        return is_current

    async def _select(self, task: Task) -> SelectResponse | ServiceError:
        """Selects the candidates; for a batch item, whose plan was checked before, waits out temporary errors."""
        with spans.use_run_span(self._run.trace):
            while True:
                try:
                    return await self._shared.selector.select(self._run, task, self._deadline)
                except ServiceError as error:
                    if not (self._run.is_batch_item and isinstance(error, _TEMPORARY)):
                        return error
                await self._shared.selector.wait_for_change()

    async def _step(self, task_id: int, results: Mapping[int, TaskResult]) -> TaskResult:
        """Executes one task to its end; a failure is a result."""
        task = self._tasks[task_id]
        if failed := [each for each, result in results.items() if result.HasField("failure")]:
            self._candidates[task_id].cancel()
            return end_task(
                self._run, TASK_STATE_SKIPPED, TaskResult(task_id=task_id, failure=_skip_failure(task, failed))
            )
        with spans.task_span(self._run, task) as span:
            result = await self._execute_or_fail(task, results)
            spans.add_result(span, result)
            return result

    async def _execute_or_fail(self, task: Task, results: Mapping[int, TaskResult]) -> TaskResult:
        try:
            return await self._execute(task, results)
        except ServiceError as error:
            if selecting := self._candidates.get(task.id):
                selecting.cancel()
            return self._end_failed(TaskResult(task_id=task.id, failure=to_failure(error)))

    async def _execute(self, task: Task, results: Mapping[int, TaskResult]) -> TaskResult:
        run, shared = self._run, self._shared
        started = time.monotonic()
        request = resolve_arguments(task, self._inputs, results)
        selected = await (self._candidates.get(task.id) or self._select(task))
        if isinstance(selected, ServiceError):
            raise selected
        seed = choose_seed(request, selected.spec, run.id, task.id)
        apply_seed(request, seed)
        digest = input_digest(request)
        if known := await shared.results.lookup(run, selected.spec, selected.candidates[0].candidate, digest):
            known.task_id, known.attempt = task.id, 0
            known.ClearField("usage")
            _record_duration(selected.spec, known, "reused", started)
            return end_task(run, TASK_STATE_REUSED, known)
        await run.wait_until_writable()
        task_request = TaskRequest(
            task_id=task.id,
            request=request,
            spec=selected.spec,
            candidates=selected.candidates,
            emit=run.emit,
            retries=self._retries,
            reselect=partial(shared.selector.reselect, run, task, self._deadline),
            deadline=self._deadline,
            last_attempt=run.fold.attempt(task.id),
        )
        result = await shared.experts.infer(task_request)
        result.seed, result.input_digest = seed, digest
        _record_duration(selected.spec, result, "failed" if result.HasField("failure") else "succeeded", started)
        if result.HasField("failure"):
            return self._end_failed(result)
        shared.experts.run_shadows(task_request, result)
        return end_task(run, TASK_STATE_SUCCEEDED, result, _memo(run, selected.spec, result))

    def _end_failed(self, result: TaskResult) -> TaskResult:
        end_task(self._run, TASK_STATE_FAILED, result)
        self._task_failed.set()
        return result


def end_task(run: RunLog, state: "TaskState.ValueType", result: TaskResult, reusable: Memo | None = None) -> TaskResult:
    """Emits the end of a task, with a result to store for reuse."""
    rename_duplicates(result, (other for _, other in run.fold.results()))
    ended = TaskEnded(state=state, result=result)
    run.emit(RunEvent(task_id=result.task_id, attempt=result.attempt, task_ended=ended), reusable)
    return result


def _record_duration(spec: TaskSpec, result: TaskResult, outcome: str, started: float) -> None:
    labels = {"task": spec.name, "model": result.by.model_id, "outcome": outcome}
    metrics.task_seconds.record(time.monotonic() - started, labels)


def _skip_failure(task: Task, failed: Sequence[int]) -> Failure:
    failed_tasks = ", ".join(map(str, failed))
    return Failure(
        reason="SKIPPED",
        code=code_pb2.ABORTED,
        message=f"{task.task} was not started: it depends on task {failed_tasks}, which has no result",
        remedy="see the failure of that task",
    )


def _memo(run: RunLog, spec: TaskSpec, result: TaskResult) -> Memo | None:
    """A result to store for reuse; None if it must not be reused."""
    if not _is_reusable(spec, result.by):
        return None
    known = TaskResult(made_by_run=run.id)
    known.MergeFrom(result)
    return Memo(run.caller.tenant, _key(result.by, result.input_digest), known)


def _is_reusable(spec: TaskSpec, by: Candidate) -> bool:
    return spec.determinism in _REPEATABLE and bool(by.revision)


def _key(by: Candidate, digest: str) -> str:
    return hashlib.sha256(f"{by.expert}\0{by.model_id}\0{by.revision}\0{digest}".encode()).hexdigest()
