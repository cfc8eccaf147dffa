"""The stages of a run: plan, select and infer for each task as soon as possible, then respond."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.internal.v1.responder_pb2 import RespondRequest
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, Replanning, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import Decision, Plan
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_APPROVE, RUN_MODE_PLAN, TASK_STATE_SKIPPED, TaskStatus, Turn
from services.common import call_context
from services.common.errors import from_rpc
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.client import to_failure
from services.orchestrator.runs.answer_buffer import AnswerBuffer
from services.orchestrator.runs.planning import PlannerClient
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.task_executor import TaskDependencies, TaskExecutor, open_executor

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceAsyncStub
    from protos.hugginggpt.internal.v1.responder_pb2_grpc import ResponderServiceAsyncStub

GRACE_SECONDS = 30.0
"""Time for the answer after the run's deadline has passed."""

GATHER_SECONDS = 0.5
"""How long other tasks may still fail before one replanning is requested for all failed tasks."""


class Workflow:
    """The stages of a run, over gRPC.

    Args:
        planner: gRPC stub.
        responder: gRPC stub.
        shared: what the tasks of all runs share.
    """

    def __init__(
        self, planner: "PlannerServiceAsyncStub", responder: "ResponderServiceAsyncStub", shared: TaskDependencies
    ) -> None:
        self._planner = PlannerClient(planner)
        self._responder = responder
        self._shared = shared

    async def check(self, request: planner_pb2.PlanRequest) -> Plan:
        """Checks a supplied plan; returns it completed.

        Raises:
            ServiceError: the plan is invalid, and the message lists all problems; or the planner is unavailable.
        """
        return await self._planner.check(request)

    async def plan(self, run: RunLog, turns: Sequence[Turn]) -> Failure | None:
        """Plans without executing; returns the failure of the plan as a whole."""
        return await self._planner.fetch(run, turns, lambda _: None, Deadline.at(run.deadline))

    async def execute(self, run: RunLog, turns: Sequence[Turn]) -> Failure | None:
        """Plans and executes all tasks; returns the failure of the plan as a whole."""
        deadline = Deadline.at(run.deadline)
        async with open_executor(run, self._shared, deadline) as executor:
            failure = await self._planner.fetch(run, turns, executor.add, deadline)
            if failure is None and _may_replan(run):
                await self._replan(run, turns, executor, deadline)
            return failure

    async def respond(self, run: RunLog, turns: Sequence[Turn], failure: Failure | None) -> Failure | None:
        """Streams the answer; returns a failure if it is missing or incomplete."""
        fold = run.fold.run
        request = RespondRequest(
            conversation=turns,
            tasks=_answered_tasks(run.fold),
            notes=fold.notes,
            inputs=fold.spec.inputs,
            sent=run.fold.answer,
            failure=failure,
            without_llm=failure is not None and failure.reason == "BUDGET",
        )
        seconds = max(run.seconds_left, GRACE_SECONDS)
        decision = Decision()
        try:
            with AnswerBuffer(run) as buffer:
                async for event in self._responder.Respond(request, timeout=seconds, metadata=call_context.metadata()):
                    buffer.add(event.text)
                    if event.HasField("decision"):
                        decision = event.decision
        except grpc.aio.AioRpcError as error:
            return to_failure(from_rpc(error))
        run.emit(RunEvent(answer_chunk=AnswerChunk(decision=decision)))
        return None

    async def _replan(self, run: RunLog, turns: Sequence[Turn], executor: TaskExecutor, deadline: Deadline) -> None:
        """Waits for the tasks; if some finally fail, requests one replanning for them."""
        all_ended = asyncio.create_task(executor.dag.wait_ended(), name=f"ended-{run.id}")
        failed = asyncio.create_task(executor.task_failed.wait(), name=f"failed-{run.id}")
        try:
            await asyncio.wait((all_ended, failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            all_ended.cancel()
            failed.cancel()
        if executor.task_failed.is_set():
            if not run.fold.is_replanning:  # otherwise an earlier owner requested it and stopped before its end
                await executor.dag.wait_ended(GATHER_SECONDS)
                run.emit(RunEvent(replanning=Replanning(failed=run.fold.failed)))
            abandoned = sorted(run.fold.abandoned)
            await self._planner.replan(run, turns, abandoned, executor.add, deadline)


def _may_replan(run: RunLog) -> bool:
    """Whether failed tasks may be replanned: once per run, and not if the caller supplied or approved the plan."""
    spec = run.fold.run.spec
    is_fixed = spec.HasField("plan") or spec.mode in {RUN_MODE_PLAN, RUN_MODE_APPROVE}
    return not is_fixed and (run.fold.is_replanning or not run.fold.abandoned)


def _answered_tasks(fold: RunFold) -> list[TaskStatus]:
    """The tasks that the answer covers: not those that a replanning replaced."""
    if not fold.replaced:
        return list(fold.run.tasks)
    return [
        status
        for status in fold.run.tasks
        if status.task.id not in fold.replaced and status.state != TASK_STATE_SKIPPED
    ]
