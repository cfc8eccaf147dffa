"""Executes a run from its first event to its last: plans it, executes its tasks, and streams the answer."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog
from google.rpc import code_pb2

from protos.hugginggpt.v1.event_pb2 import ApprovalRequested, PlanApproved, Replanning, RunEnded, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import ApproveRunRequest
from protos.hugginggpt.v1.run_pb2 import (
    RUN_MODE_APPROVE,
    RUN_MODE_PLAN,
    RUN_MODE_RESULTS,
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    TASK_STATE_CANCELLED,
    TASK_STATE_FAILED,
    RunState,
    TaskResult,
    TaskState,
    Turn,
)
from services.common import call_context
from services.common.errors import Unavailable
from services.orchestrator import metrics
from services.orchestrator.deadline import Deadline
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.runs import spans
from services.orchestrator.runs.history import read_turns
from services.orchestrator.runs.planner_client import PlannerClient
from services.orchestrator.runs.responder_client import ResponderClient
from services.orchestrator.runs.result import final_state, total_usage
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.task_executor import TaskDependencies, TaskExecutor, end_task

log = structlog.get_logger(__name__)

GATHER_SECONDS = 0.5
"""How long other tasks may still fail before one replanning is requested for all failed tasks."""

APPROVAL_SECONDS = 24 * 3600.0
"""How long a plan waits for approval."""

_DEADLINE = Failure(
    reason="DEADLINE",
    code=code_pb2.DEADLINE_EXCEEDED,
    message="the run's deadline passed",
    remedy="send a smaller request, or give the run more time (budget.wall_time)",
)
_INTERNAL = Failure(
    reason="INTERNAL", code=code_pb2.INTERNAL, message="internal error", remedy="see the orchestrator's log"
)
_EXPIRED = Failure(
    reason="EXPIRED",
    code=code_pb2.CANCELLED,
    message="the plan was not approved in time",
    remedy="send the request again, and approve the plan within a day",
)


class RunExecutor:
    """Executes runs; each run ends exactly once, unless this process releases it.

    Args:
        journal: stores the earlier runs of a conversation.
        planner: plans tasks.
        tasks: what the tasks of all runs share.
        responder: writes answers.
    """

    def __init__(
        self, journal: Journal, planner: PlannerClient, tasks: TaskDependencies, responder: ResponderClient
    ) -> None:
        self._journal = journal
        self._planner = planner
        self._tasks = tasks
        self._responder = responder

    async def execute(self, run: RunLog) -> None:
        """Executes a run to its end; if cancelled, or if the journal is unavailable, releases it for another owner."""
        with call_context.use_caller(run.caller), spans.use_run_span(run.trace):
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(run.write_events(), name=f"write-{run.id}")
                    await self._execute(run)
            except* LeaseLost:
                log.warning("lease lost", run_id=run.id)
            except* Unavailable:
                log.warning("released: journal unavailable", run_id=run.id)
            finally:
                await run.release()

    async def _execute(self, run: RunLog) -> None:
        """Executes a run until it ends or waits for approval."""
        needs_turns = _needs_conversation(run)
        turns = await read_turns(run.fold.run, run.caller.tenant, self._journal) if needs_turns else []
        if run.is_awaiting_approval and not run.cancel_reason:
            _apply_approval(run)
        try:
            failure = None if run.cancel_reason else run.stop_reason or await self._plan_and_run_tasks(run, turns)
            if _needs_approval(run, failure):
                _request_approval(run)
                return
            state, final_failure = await self._respond(run, turns, failure)
        except Exception:
            log.exception("run failed with an internal error")
            _end_tasks(run, TASK_STATE_FAILED, _INTERNAL)
            state, final_failure = RUN_STATE_FAILED, _INTERNAL
        _end_run(run, state, final_failure)

    async def _plan_and_run_tasks(self, run: RunLog, turns: Sequence[Turn]) -> Failure | None:
        """Plans and executes the tasks, or only plans if approval is needed; returns the plan's failure."""
        stage = self._plan if _is_plan_only(run) else self._run_tasks
        return await _run_stage(run, stage(run, turns, Deadline.at(run.deadline)), run.seconds_left)

    async def _plan(self, run: RunLog, turns: Sequence[Turn], deadline: Deadline) -> Failure | None:
        """Plans without executing."""
        return await self._planner.fetch(run, turns, lambda _: None, deadline)

    async def _run_tasks(self, run: RunLog, turns: Sequence[Turn], deadline: Deadline) -> Failure | None:
        """Executes each task as soon as it is planned and its inputs are available."""
        async with self._tasks.open_executor(run, deadline) as tasks:
            failure = await self._planner.fetch(run, turns, tasks.add, deadline)
            if failure is None and _may_replan(run) and await tasks.wait_failed():
                await self._replan(run, turns, tasks, deadline)
            return failure

    async def _replan(self, run: RunLog, turns: Sequence[Turn], tasks: TaskExecutor, deadline: Deadline) -> None:
        """Requests other tasks in place of failed ones, once per run."""
        if not run.fold.is_replanning:  # otherwise an earlier owner requested it and stopped before its end
            await tasks.wait_ended(GATHER_SECONDS)
            run.emit(RunEvent(replanning=Replanning(failed=run.fold.failed)))
        await self._planner.replan(run, turns, sorted(run.fold.abandoned), tasks.add, deadline)

    async def _respond(
        self, run: RunLog, turns: Sequence[Turn], failure: Failure | None
    ) -> "tuple[RunState.ValueType, Failure | None]":
        """Ends unfinished tasks and streams the answer; returns the run's final state and failure."""
        if not run.cancel_reason:
            failure = _with_last_error(run, failure)
            _end_tasks(run, TASK_STATE_FAILED, failure)
            state, final_failure = final_state(run.fold.run, failure, run.fold.replaced)
            response_failure = None
            if run.fold.run.spec.mode not in {RUN_MODE_PLAN, RUN_MODE_RESULTS}:
                response_failure = await _run_stage(run, self._responder.respond(run, turns, failure), None)
            if response_failure and state == RUN_STATE_COMPLETED:
                state, final_failure = RUN_STATE_INCOMPLETE, response_failure
        if run.cancel_reason:
            _end_tasks(run, TASK_STATE_CANCELLED, run.cancel_reason)
            state, final_failure = RUN_STATE_CANCELLED, run.cancel_reason
        return state, final_failure


async def _run_stage(run: RunLog, stage: Coroutine[Any, Any, Failure | None], seconds: float | None) -> Failure | None:
    """Runs a stage that a cancel command may stop; returns its failure."""
    run.work = work_task = asyncio.create_task(stage, name=f"work-{run.id}")
    try:
        async with asyncio.timeout(seconds):
            return await work_task
    except TimeoutError:
        return _DEADLINE
    except asyncio.CancelledError:
        if _is_released() or not (run.cancel_reason or run.stop_reason):
            raise
        return run.stop_reason
    except Exception:
        log.exception("run stage failed with an internal error")
        return _INTERNAL


def _is_released() -> bool:
    """Whether the current task is cancelled, which releases the run, rather than the run itself."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _needs_conversation(run: RunLog) -> bool:
    """Whether a stage reads the conversation: a supplied plan in results mode needs none."""
    spec = run.fold.run.spec
    return not (spec.HasField("plan") and spec.mode == RUN_MODE_RESULTS)


def _may_replan(run: RunLog) -> bool:
    """Whether failed tasks may be replanned: once per run, and not if the caller supplied or approved the plan."""
    spec = run.fold.run.spec
    is_fixed = spec.HasField("plan") or spec.mode in {RUN_MODE_PLAN, RUN_MODE_APPROVE}
    return not is_fixed and (run.fold.is_replanning or not run.fold.abandoned)


# ---------------------------------------------------------------- approval


def _is_plan_only(run: RunLog) -> bool:
    """Whether the run must not execute tasks, or not before its approval."""
    mode = run.fold.run.spec.mode
    return mode == RUN_MODE_PLAN or (mode == RUN_MODE_APPROVE and not run.fold.is_approved)


def _needs_approval(run: RunLog, failure: Failure | None) -> bool:
    """Whether the run has a plan that must be approved before it executes."""
    unapproved = run.fold.run.spec.mode == RUN_MODE_APPROVE and not run.fold.is_approved
    return unapproved and failure is None and not run.cancel_reason and bool(run.fold.run.tasks)


def _request_approval(run: RunLog) -> None:
    """Emits approval_requested, which parks the run without an owner."""
    event = RunEvent(approval_requested=ApprovalRequested())
    event.approval_requested.expire_time.FromMicroseconds(int((time.time() + APPROVAL_SECONDS) * 1e6))
    run.emit(event)


def _apply_approval(run: RunLog) -> None:
    """Lets an approved plan execute, with the time it waited added to the deadline; cancels the run if it expired."""
    if run.approval is None:
        run.cancel(_EXPIRED)
        return
    approval = ApproveRunRequest.FromString(run.approval)
    event = RunEvent(plan_approved=PlanApproved())
    if approval.HasField("plan"):
        event.plan_approved.plan.CopyFrom(approval.plan)
    waited = time.time_ns() - run.fold.approval_requested_at
    event.plan_approved.deadline.FromNanoseconds(run.fold.run.deadline.ToNanoseconds() + waited)
    run.caller.deadline.CopyFrom(event.plan_approved.deadline)
    run.emit(event)


# ---------------------------------------------------------------- end


def _end_run(run: RunLog, state: "RunState.ValueType", failure: Failure | None) -> None:
    """Emits the run's last event."""
    usage = total_usage(run.fold.run, run.fold.decisions, run.fold.failed_usage)
    run.emit(RunEvent(run_ended=RunEnded(state=state, failure=failure, usage=usage)))
    reason = failure.reason if failure else ""
    metrics.runs_ended.add(1, {"state": RunState.Name(state), "reason": metrics.reason(reason)})
    metrics.run_seconds.record(usage.elapsed.ToNanoseconds() / 1e9, {"state": RunState.Name(state)})
    spans.write_run_span(run, state, failure)
    write_log = log.debug if run.is_batch_item and state == RUN_STATE_COMPLETED else log.info
    write_log("run ended", state=RunState.Name(state), reason=reason)


def _end_tasks(run: RunLog, state: "TaskState.ValueType", failure: Failure | None) -> None:
    """Ends the unfinished tasks of a run; without a failure there are none, as in plan mode."""
    for task_id in run.fold.unfinished() if failure else ():
        end_task(run, state, TaskResult(task_id=task_id, attempt=run.fold.attempt(task_id), failure=failure))


def _with_last_error(run: RunLog, failure: Failure | None) -> Failure | None:
    """Adds the last failed attempt's error to a deadline failure."""
    errors = [run.fold.last_errors[task_id] for task_id in run.fold.unfinished() if task_id in run.fold.last_errors]
    if failure is not _DEADLINE or not errors:
        return failure
    message = f"{failure.message}; the last attempt failed: {errors[0].message}"
    remedy = errors[0].remedy or failure.remedy
    return Failure(reason=failure.reason, code=failure.code, message=message, remedy=remedy)
