"""What a run goes through: plan, then per task select and infer as soon as it can, then respond."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import grpc

from protos.hugginggpt.v1 import planner_pb2 as planning
from protos.hugginggpt.v1.responder_pb2 import RespondRequest
from protos.hugginggpt.v1.selector_pb2 import SelectRequest, SelectResponse
from protos.hugginggpt.v1.types_pb2 import (
    RUN_MODE_PLAN,
    SELECTION_POLICY_RANK,
    TASK_STATE_FAILED,
    TASK_STATE_SKIPPED,
    TASK_STATE_SUCCEEDED,
    AnswerChunk,
    Candidate,
    Decision,
    Failure,
    Plan,
    RunEvent,
    SelectionPolicy,
    Task,
    TaskEnded,
    TaskResult,
    TaskSelected,
    TaskState,
    Turn,
    Value,
)
from services.orchestrator.arguments import digest, needs, resolved
from services.orchestrator.attempts import Attempts, Job, to_failure
from services.orchestrator.dag import Dag
from services.orchestrator.live import LiveRun
from services.orchestrator.plans import Plans
from services.orchestrator.retries import RetryBudget
from services.orchestrator.words import Words
from services.runtime import caller
from services.runtime.errors import NotFound, ServiceError, from_rpc

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.v1.planner_pb2_grpc import PlannerServiceAsyncStub
    from protos.hugginggpt.v1.responder_pb2_grpc import ResponderServiceAsyncStub
    from protos.hugginggpt.v1.selector_pb2_grpc import SelectorServiceAsyncStub

GRACE_SECONDS = 30.0
"""What the answer may take after the run's deadline has passed."""

SELECTIONS_AT_ONCE = 128
"""Calls to the selector under way at once, of all runs: a gRPC server drops calls, as CANCELLED, once 1,000 wait."""


class Pipeline:
    """The four stages over gRPC.

    Args:
        planner: who plans.
        selector: who chooses.
        responder: who answers.
        attempts: who asks the experts.
        tasks_at_once: most tasks of one run under way at once.
    """

    def __init__(
        self,
        planner: "PlannerServiceAsyncStub",
        selector: "SelectorServiceAsyncStub",
        responder: "ResponderServiceAsyncStub",
        attempts: Attempts,
        *,
        tasks_at_once: int,
    ) -> None:
        self._plans = Plans(planner)
        self._selector = selector
        self._responder = responder
        self._attempts = attempts
        self._tasks_at_once = tasks_at_once
        self._selections = asyncio.Semaphore(SELECTIONS_AT_ONCE)

    async def check(self, request: planning.PlanRequest) -> Plan:
        """A supplied plan as it will run.

        Raises:
            ServiceError: the plan is not valid, the message has every complaint; or the planner does not answer.
        """
        return await self._plans.check(request)

    async def execute(self, run: LiveRun, turns: Sequence[Turn]) -> Failure | None:
        """Plans and runs all tasks, each as soon as it can; gives what is wrong with the plan as a whole."""
        inputs = {item.name: item.value for item in run.view.run.spec.inputs}
        ended = dict(run.view.results())
        tasks: dict[int, Task] = {}
        choices: dict[int, asyncio.Task[SelectResponse | ServiceError]] = {}
        retries = RetryBudget()

        async def step(task_id: int, results: Mapping[int, TaskResult]) -> TaskResult:
            return await self._task(run, tasks[task_id], inputs, results, choices[task_id], retries)

        async with asyncio.TaskGroup() as choosing, Dag(step, limit=self._tasks_at_once) as dag:

            def add(task: Task) -> None:
                tasks[task.id] = task
                if task.id in ended:
                    dag.add_ended(task.id, ended[task.id])
                elif run.view.run.spec.mode != RUN_MODE_PLAN:
                    choices[task.id] = choosing.create_task(self._select(run, task), name=f"select-{task.id}")
                    dag.add(task.id, needs(task))

            for status in run.view.run.tasks:
                add(status.task)
            return await self._plans.take(run, turns, add)

    async def respond(self, run: LiveRun, turns: Sequence[Turn], failure: Failure | None) -> Failure | None:
        """Streams the answer; gives why there is none, or not all of it."""
        view = run.view.run
        request = RespondRequest(
            conversation=turns,
            tasks=view.tasks,
            notes=view.notes,
            inputs=view.spec.inputs,
            sent=run.view.answer,
            failure=failure,
        )
        seconds = max(run.deadline - time.time(), GRACE_SECONDS)
        decision = Decision()
        try:
            with Words(run) as words:
                async for event in self._responder.Respond(request, timeout=seconds, metadata=caller.metadata()):
                    words.add(event.text)
                    if event.HasField("decision"):
                        decision = event.decision
        except grpc.aio.AioRpcError as error:
            return to_failure(from_rpc(error))
        run.emit(RunEvent(answer_chunk=AnswerChunk(decision=decision)))
        return None

    async def _chosen(
        self, run: LiveRun, task: Task, policy: "SelectionPolicy.ValueType"
    ) -> SelectResponse | ServiceError:
        spec = run.view.run.spec
        request = SelectRequest(
            task=task,
            request=spec.request,
            inference_mode=spec.inference_mode,
            selection_policy=policy,
            constraints=spec.constraints,
            avoid=self._attempts.avoid(),
        )
        try:
            async with self._selections:
                seconds = max(run.deadline - time.time(), 1.0)
                chosen: SelectResponse = await self._selector.Select(
                    request, timeout=seconds, metadata=caller.metadata()
                )
        except grpc.aio.AioRpcError as error:
            return from_rpc(error)
        return chosen

    async def _again(self, run: LiveRun, task: Task) -> Sequence[Candidate]:
        chosen = await self._chosen(run, task, SELECTION_POLICY_RANK)
        if isinstance(chosen, ServiceError):
            raise chosen
        return chosen.candidates

    async def _select(self, run: LiveRun, task: Task) -> SelectResponse | ServiceError:
        chosen = await self._chosen(run, task, run.view.run.spec.selection_policy)
        if isinstance(chosen, ServiceError):
            return chosen
        if not chosen.candidates:
            return NotFound(f"nobody was chosen for {task.task}", reason="MODEL", remedy="see `hugginggpt models`")
        selected = TaskSelected(candidates=chosen.candidates, decision=chosen.decision)
        run.emit(RunEvent(task_id=task.id, task_selected=selected))
        return chosen

    async def _task(
        self,
        run: LiveRun,
        task: Task,
        inputs: Mapping[str, Value],
        results: Mapping[int, TaskResult],
        choice: "asyncio.Task[SelectResponse | ServiceError]",
        retries: RetryBudget,
    ) -> TaskResult:
        """One task to its end, which is the last that is heard of it; a failure is a result."""
        if broken := [need for need, result in results.items() if result.HasField("failure")]:
            choice.cancel()
            return end_task(run, TASK_STATE_SKIPPED, TaskResult(task_id=task.id, failure=_skipped(task, broken)))
        try:
            request = resolved(task, inputs, results)
            chosen = await choice
            if isinstance(chosen, ServiceError):
                raise chosen
            result = await self._attempts.infer(
                Job(
                    task_id=task.id,
                    request=request,
                    spec=chosen.spec,
                    candidates=chosen.candidates,
                    emit=run.emit,
                    retries=retries,
                    again=partial(self._again, run, task),
                    last_attempt=run.view.attempt(task.id),
                )
            )
            result.input_digest = digest(request)
        except ServiceError as error:
            choice.cancel()
            result = TaskResult(task_id=task.id, failure=to_failure(error))
        failed = result.HasField("failure")
        return end_task(run, TASK_STATE_FAILED if failed else TASK_STATE_SUCCEEDED, result)


def end_task(run: LiveRun, state: "TaskState.ValueType", result: TaskResult) -> TaskResult:
    """Tells that a task is over."""
    ended = TaskEnded(state=state, result=result)
    run.emit(RunEvent(task_id=result.task_id, attempt=result.attempt, task_ended=ended))
    return result


def _skipped(task: Task, broken: Sequence[int]) -> Failure:
    which = ", ".join(str(need) for need in broken)
    return Failure(
        reason="SKIPPED",
        code="ABORTED",
        message=f"{task.task} was not started: it needs task {which}, which gave no result",
        remedy="see what was wrong there",
    )
