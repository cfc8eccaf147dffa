"""Executes the tasks of a run: selects a model once a task is planned, and calls it once its inputs are available."""

import asyncio
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
from protos.hugginggpt.v1.run_pb2 import (
    TASK_STATE_FAILED,
    TASK_STATE_REUSED,
    TASK_STATE_SKIPPED,
    TASK_STATE_SUCCEEDED,
    TaskResult,
    TaskState,
)
from protos.hugginggpt.v1.task_pb2 import Task, TaskSpec
from services.common.errors import DeadlineExceeded, NotFound, ServiceError, Unavailable
from services.orchestrator import metrics
from services.orchestrator.dag import Dag
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.attempts import RetryBudget
from services.orchestrator.experts.client import ExpertClient, TaskRequest, to_failure
from services.orchestrator.journal.tables import Memo
from services.orchestrator.runs import spans
from services.orchestrator.runs.arguments import (
    apply_seed,
    choose_seed,
    dependencies,
    input_digest,
    resolve_arguments,
)
from services.orchestrator.runs.result_cache import ResultCache, memo
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.selection import SelectorClient

log = structlog.get_logger(__name__)

_TEMPORARY = (NotFound, Unavailable, DeadlineExceeded)
"""Errors of a selection while there is no candidate for a task, or no selector."""


@dataclass(frozen=True)
class TaskDependencies:
    """What the tasks of all runs share."""

    selector: SelectorClient
    experts: ExpertClient
    results: ResultCache


class TaskExecutor:
    """The tasks of one run; created by open_executor().

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
        self._restored: dict[int, TaskResult] = {}
        self._retries = RetryBudget()
        self.dag = Dag(self._step)
        self.task_failed = asyncio.Event()
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
            self.task_failed.set()

    def add(self, task: Task) -> None:
        """Executes a task as soon as its dependencies have ended."""
        self._tasks[task.id] = task
        self._candidates[task.id] = self._selections.create_task(self._select(task), name=f"select-{task.id}")
        self.dag.add(task.id, dependencies(task))

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
        with spans.in_run(self._run.trace):
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
            return end_task(self._run, TASK_STATE_SKIPPED, TaskResult(task_id=task_id, failure=_skipped(task, failed)))
        with spans.executing(self._run, task) as span:
            result = await self._execute_or_fail(task, results)
            spans.executed(span, result)
            return result

    async def _execute_or_fail(self, task: Task, results: Mapping[int, TaskResult]) -> TaskResult:
        try:
            return await self._execute(task, results)
        except ServiceError as error:
            self._candidates[task.id].cancel()
            return self._failed(TaskResult(task_id=task.id, failure=to_failure(error)))

    async def _execute(self, task: Task, results: Mapping[int, TaskResult]) -> TaskResult:
        run, shared = self._run, self._shared
        started = time.monotonic()
        request = resolve_arguments(task, self._inputs, results)
        selected = await self._candidates[task.id]
        if isinstance(selected, ServiceError):
            raise selected
        seed = choose_seed(request, selected.spec, run.id, task.id)
        apply_seed(request, seed)
        digest = input_digest(request)
        if known := await shared.results.lookup(run, selected.spec, selected.candidates[0].candidate, digest):
            known.task_id, known.attempt = task.id, 0
            known.ClearField("usage")
            _measure(selected.spec, known, "reused", started)
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
        _measure(selected.spec, result, "failed" if result.HasField("failure") else "succeeded", started)
        if result.HasField("failure"):
            return self._failed(result)
        shared.experts.run_shadows(task_request, result)
        return end_task(run, TASK_STATE_SUCCEEDED, result, memo(run, selected.spec, result))

    def _failed(self, result: TaskResult) -> TaskResult:
        end_task(self._run, TASK_STATE_FAILED, result)
        self.task_failed.set()
        return result


@asynccontextmanager
async def open_executor(run: RunLog, shared: TaskDependencies, deadline: Deadline) -> AsyncIterator[TaskExecutor]:
    """Executes the run's tasks; leaving the block waits for the last of them."""
    async with asyncio.TaskGroup() as selections:
        executor = TaskExecutor(run, shared, selections, deadline)
        async with executor.dag:
            executor.restore()
            yield executor


def end_task(run: RunLog, state: "TaskState.ValueType", result: TaskResult, reusable: Memo | None = None) -> TaskResult:
    """Emits the end of a task, with a result to store for reuse."""
    ended = TaskEnded(state=state, result=result)
    run.emit(RunEvent(task_id=result.task_id, attempt=result.attempt, task_ended=ended), reusable)
    return result


def _measure(spec: TaskSpec, result: TaskResult, outcome: str, started: float) -> None:
    labels = {"task": spec.name, "model": result.by.model_id, "outcome": outcome}
    metrics.task_seconds.record(time.monotonic() - started, labels)


def _skipped(task: Task, failed: Sequence[int]) -> Failure:
    failed_tasks = ", ".join(map(str, failed))
    return Failure(
        reason="SKIPPED",
        code=code_pb2.ABORTED,
        message=f"{task.task} was not started: it depends on task {failed_tasks}, which has no result",
        remedy="see the failure of that task",
    )
