"""One run from its first event to its last."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

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
from services.orchestrator.runs.result import outcome, spent
from services.orchestrator.runs.run_log import LiveRun
from services.orchestrator.runs.task_executor import end_task
from services.orchestrator.runs.workflow import Pipeline

log = structlog.get_logger(__name__)

_DEADLINE = Failure(
    reason="DEADLINE",
    code="DEADLINE_EXCEEDED",
    message="the time this run had is over",
    remedy="ask for less at once, or give it more time (budget.wall_time)",
)
_BROKEN = Failure(reason="INTERNAL", code="INTERNAL", message="internal error", remedy="see the orchestrator's log")


class Driver:
    """Drives runs through the pipeline; a run ends exactly once, unless this process lets go of it."""

    def __init__(self, pipeline: Pipeline, journal: Journal) -> None:
        self._pipeline = pipeline
        self._journal = journal

    async def drive(self, run: LiveRun, parent_id: str) -> None:
        """Takes a run to its end; being cancelled leaves it for another owner, as does a journal that is not there."""
        with call_context.use_caller(run.caller), spans.driving(run.trace):
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(run.keep(), name=f"keep-{run.id}")
                    await self._through(run, parent_id)
            except* LeaseLost:
                log.warning("run lost to another orchestrator", run_id=run.id)
            except* Unavailable:
                log.warning("run let go: the journal does not answer", run_id=run.id)
            finally:
                await run.let_go()

    async def _through(self, run: LiveRun, parent_id: str) -> None:
        turns = await turns_of(run.view.run, parent_id, run.caller.tenant, self._journal) if _speaks(run) else []
        if approval.is_awaited(run) and not run.cancelled:
            approval.take(run)
        try:
            failure = None if run.cancelled else run.stopped or await self._executed(run, turns)
            if approval.is_due(run, failure):
                approval.ask(run)
                return
            state, wrong = await self._concluded(run, turns, failure)
        except Exception:
            log.exception("a run broke")
            _end_tasks(run, TASK_STATE_FAILED, _BROKEN)
            state, wrong = RUN_STATE_FAILED, _BROKEN
        usage = spent(run.view.run, run.view.decisions, run.view.lost)
        run.emit(RunEvent(run_ended=RunEnded(state=state, failure=wrong, usage=usage)))
        reason = wrong.reason if wrong else ""
        metrics.runs_ended.add(1, {"state": RunState.Name(state), "reason": metrics.reason(reason)})
        metrics.run_seconds.record(usage.elapsed.ToNanoseconds() / 1e9, {"state": RunState.Name(state)})
        spans.ended(run, state, wrong)
        told = log.debug if run.of_batch and state == RUN_STATE_COMPLETED else log.info
        told("run ended", state=RunState.Name(state), reason=reason)

    async def _executed(self, run: LiveRun, turns: Sequence[Turn]) -> Failure | None:
        """As much of the work as may be done without asking; gives what was wrong with it."""
        work = self._pipeline.plan if approval.only_plans(run) else self._pipeline.execute
        return await _worked(run, work(run, turns), run.seconds_left)

    async def _concluded(
        self, run: LiveRun, turns: Sequence[Turn], failure: Failure | None
    ) -> "tuple[RunState.ValueType, Failure | None]":
        """Ends what is under way and answers; gives how the run ends."""
        if not run.cancelled:
            failure = _explained(run, failure)
            _end_tasks(run, TASK_STATE_FAILED, failure)
            state, wrong = outcome(run.view.run, failure, run.view.replaced)
            unanswered = None
            if run.view.run.spec.mode not in {RUN_MODE_PLAN, RUN_MODE_RESULTS}:
                unanswered = await _worked(run, self._pipeline.respond(run, turns, failure), None)
            if unanswered and state == RUN_STATE_COMPLETED:
                state, wrong = RUN_STATE_INCOMPLETE, unanswered
        if run.cancelled:
            _end_tasks(run, TASK_STATE_CANCELLED, run.cancelled)
            state, wrong = RUN_STATE_CANCELLED, run.cancelled
        return state, wrong


def _speaks(run: LiveRun) -> bool:
    """Whether anybody reads the conversation: neither a plan that is there nor results alone need it."""
    spec = run.view.run.spec
    return not (spec.HasField("plan") and spec.mode == RUN_MODE_RESULTS)


async def _worked(run: LiveRun, work: Coroutine[Any, Any, Failure | None], seconds: float | None) -> Failure | None:
    """Does a part of a run that a person may cancel; gives what was wrong with it."""
    run.work = work_task = asyncio.create_task(work, name=f"work-{run.id}")
    try:
        async with asyncio.timeout(seconds):
            return await work_task
    except TimeoutError:
        return _DEADLINE
    except asyncio.CancelledError:
        if _let_go() or not (run.cancelled or run.stopped):
            raise
        return run.stopped
    except Exception:
        log.exception("a part of a run broke")
        return _BROKEN


def _let_go() -> bool:
    """Whether it is the driving of the run that is cancelled, and not the run."""
    driving = asyncio.current_task()
    return driving is not None and driving.cancelling() > 0


def _explained(run: LiveRun, failure: Failure | None) -> Failure | None:
    """A lack of time with what has taken it, if attempts at a task that has not ended have failed."""
    troubles = [run.view.troubles[task_id] for task_id in run.view.under_way() if task_id in run.view.troubles]
    if failure is not _DEADLINE or not troubles:
        return failure
    message = f"{failure.message}; the last attempt failed: {troubles[0].message}"
    remedy = troubles[0].remedy or failure.remedy
    return Failure(reason=failure.reason, code=failure.code, message=message, remedy=remedy)


def _end_tasks(run: LiveRun, state: "TaskState.ValueType", failure: Failure | None) -> None:
    """Ends tasks that are still under way when the run is; a plan that was only asked for has none."""
    for task_id in run.view.under_way() if failure else ():
        end_task(run, state, TaskResult(task_id=task_id, attempt=run.view.attempt(task_id), failure=failure))
