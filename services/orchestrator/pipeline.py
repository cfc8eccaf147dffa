"""What a run goes through: plan, then per task select and infer as soon as it can, then respond."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import grpc

from protos.hugginggpt.v1 import planner_pb2 as planning
from protos.hugginggpt.v1.responder_pb2 import RespondRequest
from protos.hugginggpt.v1.selector_pb2 import SelectRequest, SelectResponse
from protos.hugginggpt.v1.types_pb2 import (
    RUN_MODE_PLAN,
    TASK_STATE_FAILED,
    TASK_STATE_SKIPPED,
    TASK_STATE_SUCCEEDED,
    AnswerChunk,
    Decision,
    Failure,
    Plan,
    PlanCompleted,
    RunEvent,
    Task,
    TaskEnded,
    TaskPlanned,
    TaskResult,
    TaskSelected,
    TaskState,
    Turn,
    Value,
)
from services.orchestrator.arguments import digest, needs, resolved
from services.orchestrator.attempts import Attempts, to_failure
from services.orchestrator.dag import Dag
from services.orchestrator.live import LiveRun
from services.runtime import caller
from services.runtime.errors import ServiceError, Unavailable, Verdict, from_rpc, verdict

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.v1.planner_pb2_grpc import PlannerServiceAsyncStub
    from protos.hugginggpt.v1.responder_pb2_grpc import ResponderServiceAsyncStub
    from protos.hugginggpt.v1.selector_pb2_grpc import SelectorServiceAsyncStub

PLAN_CALLS = 3
"""How often the planner is asked before a plan is taken as it is: once, and twice to continue."""

CHUNK_SECONDS = 0.05
"""Answer text goes out at once, then at most so often."""

CHECK_SECONDS = 30.0
"""What the check of a supplied plan may take."""

GRACE_SECONDS = 30.0
"""What the answer may take after the run's deadline has passed."""

SELECTIONS_AT_ONCE = 128
"""Calls to the selector under way at once, of all runs: a gRPC server drops calls, as CANCELLED, once 1,000 wait."""

Add = Callable[[Task], None]


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
        self._planner = planner
        self._selector = selector
        self._responder = responder
        self._attempts = attempts
        self._tasks_at_once = tasks_at_once
        self._selections = asyncio.Semaphore(SELECTIONS_AT_ONCE)

    async def check(self, request: planning.PlanRequest) -> Plan:
        """A supplied plan as it will run.

        Raises:
            ServiceError: the plan is not valid; the message has every complaint.
        """
        try:
            stream = self._planner.Plan(request, timeout=CHECK_SECONDS, metadata=caller.metadata())
            return Plan(tasks=[event.task async for event in stream if event.HasField("task")])
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error

    async def execute(self, run: LiveRun, turns: Sequence[Turn]) -> Failure | None:
        """Plans and runs all tasks, each as soon as it can; gives what is wrong with the plan as a whole."""
        inputs = {item.name: item.value for item in run.view.run.spec.inputs}
        ended = dict(run.view.results())
        tasks: dict[int, Task] = {}
        choices: dict[int, asyncio.Task[SelectResponse | ServiceError]] = {}

        async def step(task_id: int, results: Mapping[int, TaskResult]) -> TaskResult:
            return await self._task(run, tasks[task_id], inputs, results, choices[task_id])

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
            return await self._plan(run, turns, add)

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
        pending, last, decision = "", 0.0, Decision()
        try:
            async for event in self._responder.Respond(request, timeout=seconds, metadata=caller.metadata()):
                pending += event.text
                if event.HasField("decision"):
                    decision = event.decision
                elif pending and time.monotonic() - last >= CHUNK_SECONDS:
                    run.emit(RunEvent(answer_chunk=AnswerChunk(text=pending)))
                    pending, last = "", time.monotonic()
        except grpc.aio.AioRpcError as error:
            return to_failure(from_rpc(error))
        run.emit(RunEvent(answer_chunk=AnswerChunk(text=pending, decision=decision)))
        return None

    async def _plan(self, run: LiveRun, turns: Sequence[Turn], add: Add) -> Failure | None:
        if run.view.planned:
            return None
        if run.view.run.spec.HasField("plan"):
            _supplied(run, add)
            return None
        error: ServiceError = Unavailable("the planner stopped before its plan was complete", remedy="ask again")
        for _ in range(PLAN_CALLS):
            try:
                if await self._plan_once(run, turns, add):
                    return None
            except grpc.aio.AioRpcError as raised:
                error = from_rpc(raised)
                if verdict(error) is not Verdict.RETRY:
                    break
        _plan_completed(run, Decision(reason=f"the plan may lack tasks: {error.message}"))
        return to_failure(error)

    async def _plan_once(self, run: LiveRun, turns: Sequence[Turn], add: Add) -> bool:
        """Takes what the planner sends; whether it came to an end."""
        seconds = max(run.deadline - time.time(), 1.0)
        request = _plan_request(run, turns)
        async for event in self._planner.Plan(request, timeout=seconds, metadata=caller.metadata()):
            if event.HasField("task"):
                _planned(run, event.task)
                add(event.task)
            elif event.HasField("note"):
                run.emit(RunEvent(plan_note=event.note))
            elif event.HasField("end"):
                _plan_completed(run, event.end.decision)
                return True
        return False

    async def _select(self, run: LiveRun, task: Task) -> SelectResponse | ServiceError:
        spec = run.view.run.spec
        request = SelectRequest(
            task=task,
            request=spec.request,
            inference_mode=spec.inference_mode,
            selection_policy=spec.selection_policy,
        )
        try:
            async with self._selections:
                seconds = max(run.deadline - time.time(), 1.0)
                chosen: SelectResponse = await self._selector.Select(
                    request, timeout=seconds, metadata=caller.metadata()
                )
        except grpc.aio.AioRpcError as error:
            return from_rpc(error)
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
    ) -> TaskResult:
        """One task to its end; a failure is a result."""
        if broken := [need for need, result in results.items() if result.HasField("failure")]:
            return end_task(run, TASK_STATE_SKIPPED, TaskResult(task_id=task.id, failure=_skipped(task, broken)))
        try:
            request = resolved(task, inputs, results)
            chosen = await choice
            if isinstance(chosen, ServiceError):
                raise chosen
            result = await self._attempts.infer(
                task.id, request, chosen.candidates, chosen.spec, run.emit, last_attempt=run.view.attempt(task.id)
            )
            result.input_digest = digest(request)
        except ServiceError as error:
            result = TaskResult(task_id=task.id, failure=to_failure(error))
        failed = result.HasField("failure")
        return end_task(run, TASK_STATE_FAILED if failed else TASK_STATE_SUCCEEDED, result)


def end_task(run: LiveRun, state: "TaskState.ValueType", result: TaskResult) -> TaskResult:
    """Tells that a task is over."""
    ended = TaskEnded(state=state, result=result)
    run.emit(RunEvent(task_id=result.task_id, attempt=result.attempt, task_ended=ended))
    return result


def _plan_request(run: LiveRun, turns: Sequence[Turn]) -> planning.PlanRequest:
    spec = run.view.run.spec
    prior = [
        planning.PriorTask(task=status.task, state=status.state, summary=status.result.outputs["text"].text[:500])
        if "text" in status.result.outputs
        else planning.PriorTask(task=status.task, state=status.state)
        for status in run.view.run.tasks
    ]
    goal = (
        planning.PlanGoal(continuation=planning.ContinuePlan())
        if prior
        else planning.PlanGoal(new_plan=planning.NewPlan())
    )
    return planning.PlanRequest(conversation=turns, inputs=spec.inputs, prior=prior, goal=goal, budget=spec.budget)


def _supplied(run: LiveRun, add: Add) -> None:
    there = {status.task.id for status in run.view.run.tasks}
    for task in run.view.run.spec.plan.tasks:
        if task.id not in there:
            _planned(run, task)
            add(task)
    _plan_completed(run, Decision(controller="supplied", confidence=1.0))


def _planned(run: LiveRun, task: Task) -> None:
    run.emit(RunEvent(task_id=task.id, task_planned=TaskPlanned(task=task)))


def _plan_completed(run: LiveRun, decision: Decision) -> None:
    run.emit(RunEvent(plan_completed=PlanCompleted(decision=decision, tasks=len(run.view.run.tasks))))


def _skipped(task: Task, broken: Sequence[int]) -> Failure:
    which = ", ".join(str(need) for need in broken)
    return Failure(
        reason="SKIPPED",
        code="ABORTED",
        message=f"{task.task} was not started: it needs task {which}, which gave no result",
        remedy="see what was wrong there",
    )
