"""Asking the planner: plans as they stream in, continued where they break, and supplied ones checked."""

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
)
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.client import to_failure
from services.orchestrator.runs import spans
from services.orchestrator.runs.arguments import needs
from services.orchestrator.runs.run_log import LiveRun

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceAsyncStub

CALLS = 3
"""How often the planner is asked before a plan is taken as it is: once, and twice to continue."""

SHARE = 0.5
"""Of the time a run has left, what one call of the planner may take."""

CHECK_SECONDS = 30.0
"""What the check of a supplied plan may take."""

SUMMARY_CHARACTERS = 500
"""Of a task's text, or of what was wrong with it, what the planner is told when it continues."""

Add = Callable[[Task], None]


class _TooManyTasks(Overloaded):
    reason = "BUDGET"


class Plans:
    """The planner's plans.

    Args:
        planner: who plans.
    """

    def __init__(self, planner: "PlannerServiceAsyncStub") -> None:
        self._planner = planner

    async def check(self, request: planner_pb2.PlanRequest) -> Plan:
        """A supplied plan as it will run.

        Raises:
            ServiceError: the plan is not valid, the message has every complaint; or the planner does not answer.
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
            call.cancel()  # a reader that stops before the stream's end would leave the planner working
        raise _broken_off()

    async def take(self, run: LiveRun, turns: Sequence[Turn], add: Add, deadline: Deadline) -> Failure | None:
        """Gets a run's plan, or the rest of it; gives what is wrong with it as a whole.

        Args:
            run: told of tasks, notes and the plan's end.
            turns: the conversation.
            add: given every task once it has been told.
            deadline: the run's.
        """
        if run.view.planned:
            return None
        if run.view.run.spec.HasField("plan"):
            return _supplied(run, add)
        error: ServiceError = _broken_off()
        for _ in range(CALLS):
            try:
                decision = await self._streamed(run, _request(run, turns, _goal(run)), add, deadline)
            except _TooManyTasks as spent:
                return _given_up(run, spent)
            except ServiceError as raised:
                error = raised
                if recovery_action(error) is RecoveryAction.GIVE_UP:
                    break
            else:
                _completed(run, decision)
                return None
        return _given_up(run, error)

    async def another_way(
        self, run: LiveRun, turns: Sequence[Turn], failed: Sequence[int], add: Add, deadline: Deadline
    ) -> None:
        """Asks once for other tasks in place of failed ones; where not all of them come, the failures stand."""
        request = _request(run, turns, planner_pb2.PlanGoal(replan=planner_pb2.Replan(failed=failed)))
        try:
            decision = await self._streamed(run, request, add, deadline)
        except ServiceError as error:
            decision = Decision(reason=f"no other way was planned: {error.message}")
        _completed(run, decision)

    async def _streamed(self, run: LiveRun, request: planner_pb2.PlanRequest, add: Add, deadline: Deadline) -> Decision:
        """Takes what the planner sends to the plan's end.

        Raises:
            ServiceError: the stream breaks off, or has a task that cannot stand.
        """
        with spans.planning(run, request.goal.WhichOneof("kind") or "") as span:
            decision = await self._taken(run, request, add, deadline)
            spans.planned(span, decision, len(run.view.run.tasks))
            return decision

    async def _taken(self, run: LiveRun, request: planner_pb2.PlanRequest, add: Add, deadline: Deadline) -> Decision:
        seconds = max(SHARE * deadline.left, 1.0)
        told = request.goal.WhichOneof("kind") != "replan"  # what has failed is told by its failure
        call = self._planner.Plan(request, timeout=seconds, metadata=call_context.metadata())
        try:
            async for event in call:
                if event.HasField("task"):
                    _planned(run, event.task, add)
                elif event.HasField("note") and told and event.note not in run.view.run.notes:
                    run.emit(RunEvent(plan_note=event.note))
                elif event.HasField("end"):
                    return event.end.decision
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
        finally:
            call.cancel()
        raise _broken_off()


def _goal(run: LiveRun) -> planner_pb2.PlanGoal:
    if run.view.run.tasks:
        return planner_pb2.PlanGoal(continuation=planner_pb2.ContinuePlan())
    return planner_pb2.PlanGoal(new_plan=planner_pb2.NewPlan())


def _request(run: LiveRun, turns: Sequence[Turn], goal: planner_pb2.PlanGoal) -> planner_pb2.PlanRequest:
    spec = run.view.run.spec
    prior = [_prior(status) for status in run.view.run.tasks]
    return planner_pb2.PlanRequest(conversation=turns, inputs=spec.inputs, prior=prior, goal=goal, budget=spec.budget)


def _prior(status: TaskStatus) -> planner_pb2.PriorTask:
    result = status.result
    told = result.outputs["text"].text if "text" in result.outputs else result.failure.message
    return planner_pb2.PriorTask(task=status.task, state=status.state, summary=told[:SUMMARY_CHARACTERS])


def _supplied(run: LiveRun, add: Add) -> Failure | None:
    try:
        for task in run.view.run.spec.plan.tasks:
            if task.id > run.view.last_task:  # those before it were told by an earlier owner
                _planned(run, task, add)
    except ServiceError as error:
        return _given_up(run, error)
    _completed(run, Decision(controller=CONTROLLER_SUPPLIED, confidence=1.0))
    return None


def _planned(run: LiveRun, task: Task, add: Add) -> None:
    """Tells of a task, if it can stand after those before it.

    Raises:
        CorruptData: its id does not grow, or it needs one that is not there.
        Overloaded: BUDGET, the run may not have that many.
    """
    most = run.view.run.spec.budget.tasks
    if 0 < most <= len(run.view.run.tasks):
        raise _TooManyTasks(
            f"the plan has more than the {most} tasks this run may have",
            remedy="ask for less at once, or give the run more (budget.tasks)",
        )
    if task.id <= run.view.last_task:
        raise CorruptData(f"the planner sent task {task.id} after task {run.view.last_task}", remedy="ask again")
    if missing := sorted(need for need in needs(task) if need not in run.view):
        raise CorruptData(f"the planner sent task {task.id}, which needs {missing}, not there yet", remedy="ask again")
    run.emit(RunEvent(task_id=task.id, task_planned=TaskPlanned(task=task)))
    add(task)


def _completed(run: LiveRun, decision: Decision) -> None:
    run.emit(RunEvent(plan_completed=PlanCompleted(decision=decision, tasks=len(run.view.run.tasks))))


def _given_up(run: LiveRun, error: ServiceError) -> Failure:
    _completed(run, Decision(reason=f"the plan may lack tasks: {error.message}"))
    return to_failure(error)


def _broken_off() -> Unavailable:
    return Unavailable("the planner stopped before its plan was complete", remedy="ask again")
