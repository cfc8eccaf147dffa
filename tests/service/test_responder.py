"""The responder's gRPC server."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from protos.hugginggpt.internal.v1 import responder_pb2_grpc as rpc
from protos.hugginggpt.v1 import artifact_pb2, failure_pb2, model_pb2, plan_pb2, run_pb2, task_pb2, usage_pb2
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_COMPOSED
from services.common import errors
from services.common.channel import connect
from services.responder.__main__ import responder
from services.responder.settings import Settings

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.responder_pb2_grpc import ResponderServiceAsyncStub

REQUEST = run_pb2.Turn(role=run_pb2.ROLE_USER, text="Read sign.png aloud")
SIGN = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="ab", media_type="image/png", name="sign.png"))


@pytest.fixture
async def responder_stub() -> "AsyncIterator[ResponderServiceAsyncStub]":
    async with (
        responder(Settings(listen="127.0.0.1:0")) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        yield rpc.ResponderServiceStub(channel)


def elapsed(seconds: float) -> usage_pb2.Usage:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return usage_pb2.Usage(elapsed=duration)


def ocr_task() -> run_pb2.TaskStatus:
    return run_pb2.TaskStatus(
        task=task_pb2.Task(
            id=1,
            task="image-to-text",
            arguments={"image": task_pb2.Argument(input=task_pb2.InputRef(name="file1"))},
            source="Read it",
        ),
        state=run_pb2.TASK_STATE_SUCCEEDED,
        result=run_pb2.TaskResult(
            task_id=1,
            by=model_pb2.Candidate(model_id="rapidocr", expert="lite"),
            outputs={
                "text": artifact_pb2.Value(text="Exit"),
                "details": artifact_pb2.Value(json='{"pages":[{"lines":[{}]}]}'),
            },
            usage=elapsed(0.5),
        ),
    )


def failed_speech_task() -> run_pb2.TaskStatus:
    text = task_pb2.Argument(reference=task_pb2.Reference(task_id=1, output="text"))
    return run_pb2.TaskStatus(
        task=task_pb2.Task(id=2, task="text-to-speech", arguments={"text": text}, source="Read it"),
        state=run_pb2.TASK_STATE_FAILED,
        result=run_pb2.TaskResult(task_id=2, failure=failure_pb2.Failure(message="no voice", remedy="install one")),
    )


def request(**fields: object) -> pb.RespondRequest:
    return pb.RespondRequest(
        conversation=[REQUEST],
        inputs=[artifact_pb2.NamedValue(name="file1", value=SIGN)],
        **fields,  # type: ignore[arg-type]  # each test knows its fields
    )


async def respond(
    responder_stub: "ResponderServiceAsyncStub", message: pb.RespondRequest
) -> tuple[str, plan_pb2.Decision]:
    *texts, last = [event async for event in responder_stub.Respond(message, timeout=5)]
    assert all(event.HasField("text") for event in texts)
    return "".join(event.text for event in texts), last.decision


async def test_answer_is_streamed_and_ends_with_decision(responder_stub: "ResponderServiceAsyncStub") -> None:
    answer, decision = await respond(responder_stub, request(tasks=[ocr_task(), failed_speech_task()]))
    assert answer.startswith("sign.png says: “Exit”\n\n")
    assert "1. image-to-text: rapidocr (lite), 0.50 s\n" in answer
    assert answer.endswith("- text-to-speech (“Read it”) failed: no voice. Remedy: install one.\n")
    assert decision.controller == CONTROLLER_COMPOSED


async def test_partial_answer_is_continued(responder_stub: "ResponderServiceAsyncStub") -> None:
    complete, _ = await respond(responder_stub, request(tasks=[ocr_task()]))
    rest, _ = await respond(responder_stub, request(tasks=[ocr_task()], sent=complete[:30]))
    nothing, decision = await respond(responder_stub, request(tasks=[ocr_task()], sent=complete))
    assert complete[:30] + rest == complete
    assert nothing == ""
    assert decision.controller == CONTROLLER_COMPOSED


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [(plan_pb2.NOTE_KIND_CLARIFY, "Send it."), (plan_pb2.NOTE_KIND_CHAT, "Send it.")],
)
async def test_answer_contains_notes_of_planner(
    responder_stub: "ResponderServiceAsyncStub", kind: plan_pb2.NoteKind.ValueType, sentence: str
) -> None:
    answer, _ = await respond(responder_stub, request(notes=[plan_pb2.Note(kind=kind, text="Send it.")]))
    assert sentence in answer


async def test_malformed_results_are_still_answered(responder_stub: "ResponderServiceAsyncStub") -> None:
    malformed = ocr_task()
    malformed.task.parameters_json = "{"
    malformed.result.outputs["details"].json = "[" * 100_000
    malformed.result.outputs["empty"].SetInParent()
    answer, _ = await respond(responder_stub, request(tasks=[malformed]))
    assert "Exit" in answer


async def test_request_without_text_and_results_is_invalid(responder_stub: "ResponderServiceAsyncStub") -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await respond(responder_stub, pb.RespondRequest())
    error = errors.from_rpc(caught.value)
    assert type(error) is errors.InvalidRequest
    assert error.reason == "EMPTY"
    assert error.remedy


def calculation_task(*texts: task_pb2.Argument) -> run_pb2.TaskStatus:
    return run_pb2.TaskStatus(
        task=task_pb2.Task(
            id=2,
            task="calculation",
            arguments={"text": task_pb2.Argument(list=task_pb2.ArgumentList(items=texts))},
            source="which costs more",
        ),
        state=run_pb2.TASK_STATE_SUCCEEDED,
        result=run_pb2.TaskResult(
            task_id=2, outputs={"text": artifact_pb2.Value(text="text 1 costs more; text 2 and text 3 cost less")}
        ),
    )


async def test_calculation_names_the_files_of_its_texts(responder_stub: "ResponderServiceAsyncStub") -> None:
    read = task_pb2.Argument(reference=task_pb2.Reference(task_id=1, output="text"))
    sent = task_pb2.Argument(input=task_pb2.InputRef(name="file2"))
    quoted = task_pb2.Argument(value=artifact_pb2.Value(text="Total 3.00"))
    bill = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="cd", media_type="text/plain", name="bill.txt"))
    asked = request(tasks=[ocr_task(), calculation_task(read, sent, quoted)])
    asked.inputs.append(artifact_pb2.NamedValue(name="file2", value=bill))
    text = "".join([reply.text async for reply in responder_stub.Respond(asked)])
    assert "sign.png costs more; bill.txt and text 3 cost less." in text
