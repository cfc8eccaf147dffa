"""Client of the responder: streams the answer of a run into its events."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from protos.hugginggpt.internal.v1.responder_pb2 import RespondRequest
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import Decision
from protos.hugginggpt.v1.run_pb2 import TASK_STATE_SKIPPED, TaskStatus, Turn
from services.common import call_context
from services.common.errors import from_rpc, to_failure
from services.orchestrator.runs.run_log import RunLog

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.responder_pb2_grpc import ResponderServiceAsyncStub

GRACE_SECONDS = 30.0
"""Time for the answer after the run's deadline has passed."""

CHUNK_SECONDS = 0.05
"""Shortest time between two events of an answer."""


class ResponderClient:
    """Requests answers from the responder and records them as events.

    Args:
        responder: gRPC stub.
    """

    def __init__(self, responder: "ResponderServiceAsyncStub") -> None:
        self._responder = responder

    async def respond(self, run: RunLog, turns: Sequence[Turn], failure: Failure | None) -> Failure | None:
        """Streams the answer, or the rest of it; returns a failure if it is missing or incomplete.

        Args:
            run: receives the answer's events; its tasks have ended.
            turns: the conversation.
            failure: of the run so far.
        """
        state = run.fold.run
        request = RespondRequest(
            conversation=turns,
            tasks=_answered_tasks(run.fold),
            notes=state.notes,
            inputs=state.spec.inputs,
            sent=run.fold.answer,
            failure=failure,
            without_llm=failure is not None and failure.reason == "BUDGET",
            options=state.spec.answer_options,
        )
        seconds = max(run.seconds_left, GRACE_SECONDS)
        decision = Decision()
        try:
            with _AnswerBuffer(run) as buffer:
                async for event in self._responder.Respond(request, timeout=seconds, metadata=call_context.metadata()):
                    buffer.add(event.text)
                    if event.HasField("decision"):
                        decision = event.decision
        except grpc.aio.AioRpcError as error:
            if decision.HasField("usage"):  # the LLM's tokens count even if its answer is not usable
                run.emit(RunEvent(answer_chunk=AnswerChunk(decision=decision)))
            return to_failure(from_rpc(error))
        run.emit(RunEvent(answer_chunk=AnswerChunk(decision=decision)))
        return None


class _AnswerBuffer:
    """Buffers an answer's text into events: the first text at once, then one event per interval.

    Leaving the block emits the rest.

    Args:
        run: receives the events.
    """

    def __init__(self, run: RunLog) -> None:
        self._run = run
        self._waiting = ""
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._next:
            self._next.cancel()
        self._flush()

    def add(self, text: str) -> None:
        """Adds text to the answer."""
        self._waiting += text
        if self._next is None:
            self._start_interval()

    def _start_interval(self) -> None:
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(CHUNK_SECONDS, self._start_interval) if self._waiting else None
        self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._run.emit(RunEvent(answer_chunk=AnswerChunk(text=self._waiting)))
            self._waiting = ""


def _answered_tasks(fold: RunFold) -> list[TaskStatus]:
    """The tasks that the answer covers: not those that a replanning replaced."""
    if not fold.replaced:
        return list(fold.run.tasks)
    return [
        status
        for status in fold.run.tasks
        if status.task.id not in fold.replaced and status.state != TASK_STATE_SKIPPED
    ]
