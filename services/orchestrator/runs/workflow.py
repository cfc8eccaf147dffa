"""What a run goes through: plan, then per task select and infer as soon as it can, then respond."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.internal.v1.responder_pb2 import RespondRequest
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, Replanning, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import Decision, Plan
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_APPROVE, RUN_MODE_PLAN, TASK_STATE_SKIPPED, TaskStatus, Turn
from services.common import call_context
from services.common.errors import from_rpc
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.client import to_failure
from services.orchestrator.runs.answer_buffer import Words
from services.orchestrator.runs.planning import Plans
from services.orchestrator.runs.run_log import LiveRun
from services.orchestrator.runs.run_state import RunView
from services.orchestrator.runs.task_executor import Execution, Means, executing

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceAsyncStub
    from protos.hugginggpt.internal.v1.responder_pb2_grpc import ResponderServiceAsyncStub

GRACE_SECONDS = 30.0
"""What the answer may take after the run's deadline has passed."""

GATHER_SECONDS = 0.5
"""After a task has failed, how long others may fail too before another way is asked for all of them."""


class Pipeline:
    """The four stages over gRPC.

    Args:
        planner: who plans.
        responder: who answers.
        means: by what tasks are done.
    """

    def __init__(
        self, planner: "PlannerServiceAsyncStub", responder: "ResponderServiceAsyncStub", means: Means
    ) -> None:
        self._plans = Plans(planner)
        self._responder = responder
        self._means = means

    async def check(self, request: planner_pb2.PlanRequest) -> Plan:
        """A supplied plan as it will run.

        Raises:
            ServiceError: the plan is not valid, the message has every complaint; or the planner does not answer.
        """
        return await self._plans.check(request)

    async def plan(self, run: LiveRun, turns: Sequence[Turn]) -> Failure | None:
        """Plans, and runs nothing; gives what is wrong with the plan as a whole."""
        return await self._plans.take(run, turns, lambda _: None, Deadline.at(run.deadline))

    async def execute(self, run: LiveRun, turns: Sequence[Turn]) -> Failure | None:
        """Plans and runs all tasks, each as soon as it can; gives what is wrong with the plan as a whole."""
        deadline = Deadline.at(run.deadline)
        async with executing(run, self._means, deadline) as execution:
            failure = await self._plans.take(run, turns, execution.add, deadline)
            if failure is None and _may_replan(run):
                await self._another_way(run, turns, execution, deadline)
            return failure

    async def respond(self, run: LiveRun, turns: Sequence[Turn], failure: Failure | None) -> Failure | None:
        """Streams the answer; gives why there is none, or not all of it."""
        view = run.view.run
        request = RespondRequest(
            conversation=turns,
            tasks=_told(run.view),
            notes=view.notes,
            inputs=view.spec.inputs,
            sent=run.view.answer,
            failure=failure,
            without_llm=failure is not None and failure.reason == "BUDGET",
        )
        seconds = max(run.seconds_left, GRACE_SECONDS)
        decision = Decision()
        try:
            with Words(run) as words:
                async for event in self._responder.Respond(request, timeout=seconds, metadata=call_context.metadata()):
                    words.add(event.text)
                    if event.HasField("decision"):
                        decision = event.decision
        except grpc.aio.AioRpcError as error:
            return to_failure(from_rpc(error))
        run.emit(RunEvent(answer_chunk=AnswerChunk(decision=decision)))
        return None

    async def _another_way(self, run: LiveRun, turns: Sequence[Turn], execution: Execution, deadline: Deadline) -> None:
        """Waits for the tasks; if some finally fail, asks the planner once for another way to their results."""
        settled = asyncio.create_task(execution.dag.settled(), name=f"settled-{run.id}")
        trouble = asyncio.create_task(execution.trouble.wait(), name=f"trouble-{run.id}")
        try:
            await asyncio.wait((settled, trouble), return_when=asyncio.FIRST_COMPLETED)
        finally:
            settled.cancel()
            trouble.cancel()
        if execution.trouble.is_set():
            if not run.view.replanning:  # else an earlier owner has asked, and was gone before all of it was there
                await execution.dag.settled(GATHER_SECONDS)
                run.emit(RunEvent(replanning=Replanning(failed=run.view.failed)))
            failed = sorted(run.view.given_up)
            await self._plans.another_way(run, turns, failed, execution.add, deadline)


def _may_replan(run: LiveRun) -> bool:
    """Not where the plan is the caller's own or was approved as it is, and once only, to the end."""
    spec = run.view.run.spec
    own = spec.HasField("plan") or spec.mode in {RUN_MODE_PLAN, RUN_MODE_APPROVE}
    return not own and (run.view.replanning or not run.view.given_up)


def _told(view: RunView) -> list[TaskStatus]:
    """The tasks of which an answer speaks: not those to whose results another way was found."""
    if not view.replaced:
        return list(view.run.tasks)
    return [
        status
        for status in view.run.tasks
        if status.task.id not in view.replaced and status.state != TASK_STATE_SKIPPED
    ]
