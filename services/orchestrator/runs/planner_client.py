"""Client of the planner: streams plans, continues broken streams, and checks supplied plans."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import grpc

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.v1.event_pb2 import PlanCompleted, RunEvent, TaskPlanned
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_SUPPLIED, Decision, Plan
from protos.hugginggpt.v1.run_pb2 import TaskStatus, Turn
from protos.hugginggpt.v1.task_pb2 import Task
from services.common import call_context
from services.common.errors import (
    CorruptData,
    Overloaded,
    RecoveryAction,
    ServiceError,
    Unavailable,
    from_rpc,
    recovery_action,
    to_failure,
)
from services.orchestrator.deadline import Deadline
from services.orchestrator.runs import spans
from services.orchestrator.runs.arguments import dependencies
from services.orchestrator.runs.run_log import RunLog

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceAsyncStub

CALLS = 3
"""Calls of the planner for one plan: the first, and two to continue a broken stream."""

SHARE = 0.5
"""Share of the run's remaining time for one call of the planner."""

CHECK_SECONDS = 30.0
"""Timeout of the check of a supplied plan."""

SUMMARY_CHARACTERS = 500
"""Characters of an earlier task's text or error that the planner receives."""

AddTask = Callable[[Task], None]


class _TooManyTasks(Overloaded):
    reason = "BUDGET"


class PlannerClient:
    """Requests plans from the planner and records them as events.

    Args:
        planner: gRPC stub.
    """

    def __init__(self, planner: "PlannerServiceAsyncStub") -> None:
        self._planner = planner

    async def check(self, request: planner_pb2.PlanRequest) -> Plan:
        """Checks a supplied plan; returns it completed.

        Raises:
            ServiceError: the plan is invalid, and the message lists all problems; or the planner is unavailable.
        """
        plan = Plan()
        call = self._planner.Plan(request, timeout=CHECK_SECONDS, metadata=call_context.metadata())
        try:
            async for event in call:
                if event.HasField("task"):
                    plan.tasks.append(event.task)
                elif event.HasField("end"):
                    return plan
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
        finally:
            call.cancel()  # otherwise the planner would continue after the reader stops
        raise _truncated_error()

    async def fetch(self, run: RunLog, turns: Sequence[Turn], add: AddTask, deadline: Deadline) -> Failure | None:
        """Fetches a run's plan, or the rest of it; returns the failure of the plan as a whole.

        Args:
            run: receives events of tasks, notes and the plan's end.
            turns: the conversation.
            add: called with each task after its event.
            deadline: of the run.
        """
        if run.fold.is_planned:
            return None
        if run.fold.run.spec.HasField("plan"):
            return _add_supplied_plan(run, add)
        error: ServiceError = _truncated_error()
        for _ in range(CALLS):
            try:
                decision = await self._read_plan(run, _plan_request(run, turns, _plan_goal(run)), add, deadline)
            except _TooManyTasks as too_many:
                return _emit_incomplete(run, too_many)
            except ServiceError as raised:
                error = raised
                if recovery_action(error) is RecoveryAction.GIVE_UP:
                    break
            else:
                _emit_completed(run, decision)
                return None
        return _emit_incomplete(run, error)

    async def replan(
        self, run: RunLog, turns: Sequence[Turn], failed: Sequence[int], add: AddTask, deadline: Deadline
    ) -> None:
        """Requests other tasks in place of failed ones; if the new plan is incomplete, the failures remain."""
        request = _plan_request(run, turns, planner_pb2.PlanGoal(replan=planner_pb2.Replan(failed=failed)))
        try:
            decision = await self._read_plan(run, request, add, deadline)
        except ServiceError as error:
            decision = Decision(reason=f"no alternative was planned: {error.message}")
        _emit_completed(run, decision)

    async def _read_plan(
        self, run: RunLog, request: planner_pb2.PlanRequest, add: AddTask, deadline: Deadline
    ) -> Decision:
        """Reads one plan stream to its end.

        Raises:
            ServiceError: the stream breaks off, or contains an invalid task.
        """
        goal = request.goal.WhichOneof("kind") or ""
        records_notes = goal != "replan"  # the failures already describe those tasks
        with spans.plan_span(run, goal) as span:
            seconds = max(SHARE * deadline.left, 1.0)
            call = self._planner.Plan(request, timeout=seconds, metadata=call_context.metadata())
            try:
                async for event in call:
                    if event.HasField("task"):
                        _record_task(run, event.task, add)
                    elif event.HasField("note") and records_notes and event.note not in run.fold.run.notes:
                        run.emit(RunEvent(plan_note=event.note))
                    elif event.HasField("end"):
                        spans.add_decision(span, event.end.decision, len(run.fold.run.tasks))
                        return event.end.decision
            except grpc.aio.AioRpcError as error:
                raise from_rpc(error) from error
            finally:
                call.cancel()  # otherwise the planner would continue after the reader stops
            raise _truncated_error()


def _plan_goal(run: RunLog) -> planner_pb2.PlanGoal:
    if run.fold.run.tasks:
        return planner_pb2.PlanGoal(continuation=planner_pb2.ContinuePlan())
    return planner_pb2.PlanGoal(new_plan=planner_pb2.NewPlan())


def _plan_request(run: RunLog, turns: Sequence[Turn], goal: planner_pb2.PlanGoal) -> planner_pb2.PlanRequest:
    spec = run.fold.run.spec
    prior = [_prior_task(status) for status in run.fold.run.tasks]
    return planner_pb2.PlanRequest(conversation=turns, inputs=spec.inputs, prior=prior, goal=goal, budget=spec.budget)


def _prior_task(status: TaskStatus) -> planner_pb2.PriorTask:
    result = status.result
    text = result.outputs["text"].text if "text" in result.outputs else result.failure.message
    return planner_pb2.PriorTask(task=status.task, state=status.state, summary=text[:SUMMARY_CHARACTERS])


def _add_supplied_plan(run: RunLog, add: AddTask) -> Failure | None:
    try:
        for task in run.fold.run.spec.plan.tasks:
            if task.id > run.fold.last_task:  # earlier ones were recorded by the previous owner
                _record_task(run, task, add)
    except ServiceError as error:
        return _emit_incomplete(run, error)
    _emit_completed(run, Decision(controller=CONTROLLER_SUPPLIED, confidence=1.0))
    return None


def _record_task(run: RunLog, task: Task, add: AddTask) -> None:
    """Emits a planned task, if it is valid after the earlier ones.

    Raises:
        CorruptData: its ID does not grow, or a task it depends on is missing.
        Overloaded: BUDGET, the run may not have that many tasks.
    """
    limit = run.fold.run.spec.budget.tasks
    if 0 < limit <= len(run.fold.run.tasks):
        raise _TooManyTasks(
            f"the plan has more than the {limit} tasks of the run's budget",
            remedy="send a smaller request, or raise the budget (budget.tasks)",
        )
    if task.id <= run.fold.last_task:
        message = f"the planner sent task {task.id} after task {run.fold.last_task}"
        raise CorruptData(message, remedy="send the request again")
    if missing := sorted(each for each in dependencies(task) if each not in run.fold):
        message = f"the planner sent task {task.id} before tasks it depends on: {missing}"
        raise CorruptData(message, remedy="send the request again")
    run.emit(RunEvent(task_id=task.id, task_planned=TaskPlanned(task=task)))
    add(task)


def _emit_completed(run: RunLog, decision: Decision) -> None:
    run.emit(RunEvent(plan_completed=PlanCompleted(decision=decision, tasks=len(run.fold.run.tasks))))


def _emit_incomplete(run: RunLog, error: ServiceError) -> Failure:
    _emit_completed(run, Decision(reason=f"the plan may lack tasks: {error.message}"))
    return to_failure(error)


def _truncated_error() -> Unavailable:
    return Unavailable("the planner's stream ended before the plan was complete", remedy="send the request again")
