"""Executes a run from its first event to its last."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog
from google.rpc import code_pb2

from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import (
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
from services.orchestrator.journal import Journal, LeaseLost
from services.orchestrator.runs import approval, spans
from services.orchestrator.runs.conversation import turns_of
from services.orchestrator.runs.result import outcome, total_usage
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.task_executor import end_task
from services.orchestrator.runs.workflow import Workflow

log = structlog.get_logger(__name__)

_DEADLINE = Failure(
    reason="DEADLINE",
    code=code_pb2.DEADLINE_EXCEEDED,
    message="the run's deadline passed",
    remedy="send a smaller request, or give the run more time (budget.wall_time)",
)
_INTERNAL = Failure(
    reason="INTERNAL", code=code_pb2.INTERNAL, message="internal error", remedy="see the orchestrator's log"
)


class RunExecutor:
    """Takes runs through their workflow; each run ends exactly once, unless this process releases it."""

    def __init__(self, workflow: Workflow, journal: Journal) -> None:
        self._workflow = workflow
        self._journal = journal

    async def execute(self, run: RunLog) -> None:
        """Executes a run to its end; if cancelled, or if the journal is unavailable, releases it for another owner."""
        with call_context.use_caller(run.caller), spans.in_run(run.trace):
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
        needs_turns = _needs_conversation(run)
        turns = await turns_of(run.fold.run, run.caller.tenant, self._journal) if needs_turns else []
        if approval.is_awaited(run) and not run.cancel_reason:
            approval.apply_decision(run)
        try:
            failure = None if run.cancel_reason else run.stop_reason or await self._plan_and_run(run, turns)
            if approval.needs_approval(run, failure):
                approval.request_approval(run)
                return
            state, final_failure = await self._finish(run, turns, failure)
        except Exception:
            log.exception("run failed with an internal error")
            _end_tasks(run, TASK_STATE_FAILED, _INTERNAL)
            state, final_failure = RUN_STATE_FAILED, _INTERNAL
        usage = total_usage(run.fold.run, run.fold.decisions, run.fold.failed_usage)
        run.emit(RunEvent(run_ended=RunEnded(state=state, failure=final_failure, usage=usage)))
        reason = final_failure.reason if final_failure else ""
        metrics.runs_ended.add(1, {"state": RunState.Name(state), "reason": metrics.reason(reason)})
        metrics.run_seconds.record(usage.elapsed.ToNanoseconds() / 1e9, {"state": RunState.Name(state)})
        spans.write_run_span(run, state, final_failure)
        write_log = log.debug if run.is_batch_item and state == RUN_STATE_COMPLETED else log.info
        write_log("run ended", state=RunState.Name(state), reason=reason)

    async def _plan_and_run(self, run: RunLog, turns: Sequence[Turn]) -> Failure | None:
        """Plans and executes the tasks, or only plans if approval is needed; returns the plan's failure."""
        stage = self._workflow.plan if approval.is_plan_only(run) else self._workflow.execute
        return await _run_stage(run, stage(run, turns), run.seconds_left)

    async def _finish(
        self, run: RunLog, turns: Sequence[Turn], failure: Failure | None
    ) -> "tuple[RunState.ValueType, Failure | None]":
        """Ends unfinished tasks and streams the answer; returns the run's final state and failure."""
        if not run.cancel_reason:
            failure = _with_last_error(run, failure)
            _end_tasks(run, TASK_STATE_FAILED, failure)
            state, final_failure = outcome(run.fold.run, failure, run.fold.replaced)
            response_failure = None
            if run.fold.run.spec.mode not in {RUN_MODE_PLAN, RUN_MODE_RESULTS}:
                response_failure = await _run_stage(run, self._workflow.respond(run, turns, failure), None)
            if response_failure and state == RUN_STATE_COMPLETED:
                state, final_failure = RUN_STATE_INCOMPLETE, response_failure
        if run.cancel_reason:
            _end_tasks(run, TASK_STATE_CANCELLED, run.cancel_reason)
            state, final_failure = RUN_STATE_CANCELLED, run.cancel_reason
        return state, final_failure


def _needs_conversation(run: RunLog) -> bool:
    """Whether a stage reads the conversation: a supplied plan in results mode needs none."""
    spec = run.fold.run.spec
    return not (spec.HasField("plan") and spec.mode == RUN_MODE_RESULTS)


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


def _with_last_error(run: RunLog, failure: Failure | None) -> Failure | None:
    """Adds the last failed attempt's error to a deadline failure."""
    errors = [run.fold.last_errors[task_id] for task_id in run.fold.unfinished() if task_id in run.fold.last_errors]
    if failure is not _DEADLINE or not errors:
        return failure
    message = f"{failure.message}; the last attempt failed: {errors[0].message}"
    remedy = errors[0].remedy or failure.remedy
    return Failure(reason=failure.reason, code=failure.code, message=message, remedy=remedy)


def _end_tasks(run: RunLog, state: "TaskState.ValueType", failure: Failure | None) -> None:
    """Ends the unfinished tasks of a run; without a failure there are none, as in plan mode."""
    for task_id in run.fold.unfinished() if failure else ():
        end_task(run, state, TaskResult(task_id=task_id, attempt=run.fold.attempt(task_id), failure=failure))
