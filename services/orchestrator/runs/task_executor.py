"""The tasks of a run under way: a model is chosen once a task is planned, it is called once what it needs is there."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import structlog

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
from services.orchestrator.experts.backoff import RetryBudget
from services.orchestrator.experts.client import Attempts, Job, to_failure
from services.orchestrator.journal.tables import Memo
from services.orchestrator.runs import seeds, spans
from services.orchestrator.runs.arguments import digest, needs, resolved
from services.orchestrator.runs.result_cache import Memory, memo
from services.orchestrator.runs.run_log import LiveRun
from services.orchestrator.runs.selection import Selections

log = structlog.get_logger(__name__)

_AWAY = (NotFound, Unavailable, DeadlineExceeded)
"""What is said where nobody can do a task, or the selector is not there."""


@dataclass(frozen=True)
class Means:
    """By what tasks are done."""

    selections: Selections
    attempts: Attempts
    memory: Memory


class Execution:
    """The tasks of one run; whoever opens it with executing() leaves when the last has ended.

    Args:
        run: told of what becomes of them.
        means: by what they are done.
        choosing: the group in which models are chosen.
        deadline: the run's.
    """

    def __init__(self, run: LiveRun, means: Means, choosing: asyncio.TaskGroup, deadline: Deadline) -> None:
        self._run = run
        self._means = means
        self._choosing = choosing
        self._deadline = deadline
        self._inputs = {item.name: item.value for item in run.view.run.spec.inputs}
        self._tasks: dict[int, Task] = {}
        self._choices: dict[int, asyncio.Task[SelectResponse | ServiceError]] = {}
        self._kept: dict[int, TaskResult] = {}
        self._retries = RetryBudget()
        self.dag = Dag(self._step)
        self.trouble = asyncio.Event()
        """A task has finally failed."""

    def take_up(self) -> None:
        """Adds what was planned before; what has ended stays as it is, if it was made of what is there."""
        before = dict(self._run.view.results())
        for status in list(self._run.view.run.tasks):
            task = status.task
            if task.id in before and self._stands(task, before[task.id]):
                self._kept[task.id] = before[task.id]
                self._tasks[task.id] = task
                self.dag.add_ended(task.id, before[task.id])
            else:
                self.add(task)
        if self._run.view.failed:
            self.trouble.set()

    def add(self, task: Task) -> None:
        """Has a task done as soon as it can be."""
        self._tasks[task.id] = task
        self._choices[task.id] = self._choosing.create_task(self._choice(task), name=f"select-{task.id}")
        self.dag.add(task.id, needs(task))

    def _stands(self, task: Task, result: TaskResult) -> bool:
        if result.HasField("failure"):
            return True
        try:
            request = resolved(task, self._inputs, {need: self._kept[need] for need in needs(task)})
        except (KeyError, ServiceError):  # what it was made of is not there any more
            return False
        seeds.fix(request, result.seed)
        stands = digest(request) == result.input_digest
        if not stands:
            log.warning("a kept result was made of other inputs, the task runs again", task_id=task.id)
        return stands

    async def _choice(self, task: Task) -> SelectResponse | ServiceError:
        """Who is to do it; an item of a batch, whose plan was vouched for, waits for who is away for the moment."""
        with spans.driving(self._run.trace):
            while True:
                try:
                    return await self._means.selections.choose(self._run, task, self._deadline)
                except ServiceError as error:
                    if not (self._run.of_batch and isinstance(error, _AWAY)):
                        return error
                await self._means.selections.change()

    async def _step(self, task_id: int, results: Mapping[int, TaskResult]) -> TaskResult:
        """One task to its end, which is the last that is heard of it; a failure is a result."""
        task = self._tasks[task_id]
        if broken := [need for need, result in results.items() if result.HasField("failure")]:
            self._choices[task_id].cancel()
            return end_task(self._run, TASK_STATE_SKIPPED, TaskResult(task_id=task_id, failure=_skipped(task, broken)))
        with spans.executing(self._run, task) as span:
            result = await self._done_or_failed(task, results)
            spans.executed(span, result)
            return result

    async def _done_or_failed(self, task: Task, results: Mapping[int, TaskResult]) -> TaskResult:
        try:
            return await self._done(task, results)
        except ServiceError as error:
            self._choices[task.id].cancel()
            return self._failed(TaskResult(task_id=task.id, failure=to_failure(error)))

    async def _done(self, task: Task, results: Mapping[int, TaskResult]) -> TaskResult:
        run, means = self._run, self._means
        began = time.monotonic()
        request = resolved(task, self._inputs, results)
        chosen = await self._choices[task.id]
        if isinstance(chosen, ServiceError):
            raise chosen
        seed = seeds.seed_of(request, chosen.spec, run.id, task.id)
        seeds.fix(request, seed)
        of_inputs = digest(request)
        if known := await means.memory.recalled(run, chosen.spec, chosen.candidates[0], of_inputs):
            known.task_id, known.attempt = task.id, 0
            known.ClearField("usage")
            _measured(chosen.spec, known, "reused", began)
            return end_task(run, TASK_STATE_REUSED, known)
        await run.startable()
        job = Job(
            task_id=task.id,
            request=request,
            spec=chosen.spec,
            candidates=chosen.candidates,
            emit=run.emit,
            retries=self._retries,
            again=partial(means.selections.again, run, task, self._deadline),
            deadline=self._deadline,
            last_attempt=run.view.attempt(task.id),
        )
        result = await means.attempts.infer(job)
        result.seed, result.input_digest = seed, of_inputs
        _measured(chosen.spec, result, "failed" if result.HasField("failure") else "succeeded", began)
        if result.HasField("failure"):
            return self._failed(result)
        means.attempts.follow(job, result)
        return end_task(run, TASK_STATE_SUCCEEDED, result, memo(run, chosen.spec, result))

    def _failed(self, result: TaskResult) -> TaskResult:
        end_task(self._run, TASK_STATE_FAILED, result)
        self.trouble.set()
        return result


@asynccontextmanager
async def executing(run: LiveRun, means: Means, deadline: Deadline) -> AsyncIterator[Execution]:
    """The run's tasks; left when the last has ended."""
    async with asyncio.TaskGroup() as choosing:
        execution = Execution(run, means, choosing, deadline)
        async with execution.dag:
            execution.take_up()
            yield execution


def end_task(
    run: LiveRun, state: "TaskState.ValueType", result: TaskResult, found_again: Memo | None = None
) -> TaskResult:
    """Tells that a task is over."""
    ended = TaskEnded(state=state, result=result)
    run.emit(RunEvent(task_id=result.task_id, attempt=result.attempt, task_ended=ended), found_again)
    return result


def _measured(spec: TaskSpec, result: TaskResult, outcome: str, began: float) -> None:
    labels = {"task": spec.name, "model": result.by.model_id, "outcome": outcome}
    metrics.task_seconds.record(time.monotonic() - began, labels)


def _skipped(task: Task, broken: Sequence[int]) -> Failure:
    which = ", ".join(str(need) for need in broken)
    return Failure(
        reason="SKIPPED",
        code="ABORTED",
        message=f"{task.task} was not started: it needs task {which}, which gave no result",
        remedy="see what was wrong there",
    )
