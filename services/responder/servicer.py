"""gRPC servicer, and conversions between protobuf messages and the responder's types."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from protos.hugginggpt.internal.v1 import responder_pb2_grpc as rpc
from protos.hugginggpt.v1 import artifact_pb2, failure_pb2, plan_pb2, run_pb2, task_pb2, usage_pb2
from services.responder.responder import Decision, Responder, ResponseEvent
from services.responder.run_summary import (
    Artifact,
    Failure,
    Json,
    Note,
    NoteKind,
    Output,
    RunSummary,
    State,
    Task,
    Turn,
)

_KINDS: Mapping[int, NoteKind] = {
    plan_pb2.NOTE_KIND_UNMAPPED: NoteKind.MISSING,
    plan_pb2.NOTE_KIND_CLARIFY: NoteKind.MISSING,
    plan_pb2.NOTE_KIND_CHAT: NoteKind.CHAT,
    plan_pb2.NOTE_KIND_TRIMMED: NoteKind.UNUSED_FILE,
}
_STATES: Mapping[int, State] = {
    run_pb2.TASK_STATE_SUCCEEDED: State.SUCCEEDED,
    run_pb2.TASK_STATE_REUSED: State.REUSED,
    run_pb2.TASK_STATE_FAILED: State.FAILED,
    run_pb2.TASK_STATE_SKIPPED: State.SKIPPED,
    run_pb2.TASK_STATE_CANCELLED: State.CANCELLED,
}


class ResponderServicer(rpc.ResponderServiceServicer):
    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    async def Respond(self, request: pb.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        lock = asyncio.Lock()  # gRPC allows one write at a time

        async def emit(piece: ResponseEvent) -> None:
            async with lock:
                await context.write(event_to_pb(piece))

        summary = summary_from_pb(request)
        seconds = context.time_remaining()
        await self._responder.respond(summary, emit, seconds=seconds, without_llm=request.without_llm)


def summary_from_pb(request: pb.RespondRequest) -> RunSummary:
    given = {
        named.name: _artifact(named.value.artifact, named.name) for named in request.inputs if _is_file(named.value)
    }
    files = {name: file.name for name, file in given.items()}
    return RunSummary(
        request=request.conversation[-1].text if request.conversation else "",
        tasks=tuple(_task(status, files) for status in request.tasks),
        notes=tuple(Note(_KINDS.get(note.kind, NoteKind.OTHER), note.text) for note in request.notes),
        failure=_failure(request.failure) if request.HasField("failure") else None,
        sent=request.sent,
        history=tuple(_turn(turn) for turn in request.conversation[:-1]),
        given=given,
    )


def event_to_pb(piece: ResponseEvent) -> pb.RespondEvent:
    if isinstance(piece, Decision):
        return pb.RespondEvent(decision=_decision(piece))
    return pb.RespondEvent(text=piece)


def _decision(decision: Decision) -> plan_pb2.Decision:
    return plan_pb2.Decision(
        controller=plan_pb2.Controller.Value(f"CONTROLLER_{decision.controller.upper()}"),
        reason=decision.reason,
        llm_model=decision.llm_model,
        fell_back_because=decision.fell_back_because,
        usage=decision.usage.to_pb() if decision.usage else None,
        version=decision.version,
    )


def _turn(turn: run_pb2.Turn) -> Turn:
    return Turn(by_user=turn.role == run_pb2.ROLE_USER, text=turn.text)


def _task(status: run_pb2.TaskStatus, files: Mapping[str, str]) -> Task:
    task, result = status.task, status.result
    arguments = [argument_value for argument in task.arguments.values() for argument_value in _singles(argument)]
    by = result.by if result.by.model_id else status.candidate
    return Task(
        id=task.id,
        name=task.task,
        state=_STATES.get(status.state, State.OPEN),
        source=task.source,
        outputs={port: _output(value) for port, value in result.outputs.items()},
        parameters=_object(task.parameters_json),
        question=task.arguments["question"].value.text if "question" in task.arguments else "",
        given=tuple(dict.fromkeys(name for argument_value in arguments if (name := _file(argument_value, files)))),
        needs=frozenset(
            argument_value.reference.task_id for argument_value in arguments if argument_value.HasField("reference")
        ),
        model=by.model_id,
        expert=by.expert,
        seconds=_seconds(result.usage),
        failure=_failure(result.failure) if result.HasField("failure") else None,
    )


def _singles(argument: task_pb2.Argument) -> Iterator[task_pb2.Argument]:
    if argument.HasField("list"):
        yield from argument.list.items
    else:
        yield argument


def _file(argument: task_pb2.Argument, files: Mapping[str, str]) -> str:
    """Returns the name of the file that an argument refers to; empty if it is not a file."""
    if argument.HasField("input"):
        return files.get(argument.input.name, "")
    return argument.value.artifact.name if argument.HasField("value") else ""


def _output(value: artifact_pb2.Value) -> Output:
    match value.WhichOneof("kind"):
        case "artifact":
            return _artifact(value.artifact)
        case "json":
            return Json(_parsed(value.json))
        case _:
            return value.text


def _is_file(value: artifact_pb2.Value) -> bool:
    return value.HasField("artifact")


def _artifact(artifact: artifact_pb2.Artifact, default: str = "") -> Artifact:
    return Artifact(artifact.name or default, artifact.media_type, artifact.size_bytes)


def _object(text: str) -> Mapping[str, Any]:
    parsed = _parsed(text or "{}")
    return parsed if isinstance(parsed, dict) else {}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _seconds(usage: usage_pb2.Usage) -> float | None:
    for field in ("elapsed", "busy"):
        if usage.HasField(field):
            return float(getattr(usage, field).ToTimedelta().total_seconds())
    return None


def _failure(failure: failure_pb2.Failure) -> Failure:
    return Failure(failure.message, failure.remedy)
