"""Run records: complete facts, no content."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from jsonschema import Draft202012Validator

from gateway.json_encoder import encode
from gateway.openapi.schemas import record_schema
from gateway.provenance.record import record
from gateway.provenance.run_account import Account
from protos.hugginggpt.v1 import (
    artifact_pb2,
    caller_pb2,
    event_pb2,
    failure_pb2,
    model_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
)
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_COMPOSED, CONTROLLER_LLM

MARKER = "zebrafish"

ALLOWED_STRINGS = {
    *("run_id", "conversation_id", "parent_run_id", "made_by_run", "tenant", "key_id", "request_id"),
    *("model_id", "revision", "expert", "expert_version", "controller", "llm_model", "version"),
    *("pool_seconds", "task", "sha256", "media_type", "input_digest"),
}
"""Strings that the record may show; all others could contain user content."""

JSON = {
    "json": json.dumps({MARKER: [MARKER, 0.5]}),
    "parameters_json": json.dumps({"prompt": MARKER, "labels": [MARKER, {MARKER: 1}], "top_k": 3, "exact": True}),
}
KINDS = ("text", "json", "artifact")


def fill_strings(message: Message, kind: str) -> None:
    """Fills every string of a message, at any depth, with the marker, except the allowed ones."""
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof and field.containing_oneof.name in {"kind", "event"}:
            continue
        _fill(message, field, kind)
    for value in ("value",) if message.DESCRIPTOR.name == "Argument" else ():
        _fill(message, message.DESCRIPTOR.fields_by_name[value], kind)
    if message.DESCRIPTOR.name == "Value":
        _fill(message, message.DESCRIPTOR.fields_by_name[kind], kind)


def _fill(message: Message, field: Any, kind: str) -> None:
    holder = getattr(message, field.name)
    if field.message_type and field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].message_type:
            fill_strings(holder["text"], kind)
        elif field.name in ALLOWED_STRINGS:
            holder["shown"] = 1.5
        else:
            holder[MARKER] = MARKER
    elif field.message_type and field.message_type.full_name.startswith("hugginggpt"):
        fill_strings(holder.add() if field.is_repeated else holder, kind)
    elif field.type == FieldDescriptor.TYPE_STRING:
        text = "shown" if field.name in ALLOWED_STRINGS else JSON.get(field.name, MARKER)
        if field.is_repeated:
            holder.append(text)
        else:
            setattr(message, field.name, text)


def events_of_every_kind(kind: str) -> list[RunEvent]:
    """One event of every kind except plan_approved, with all strings filled."""
    order = [
        field.name for field in RunEvent.DESCRIPTOR.oneofs_by_name["event"].fields if field.name != "plan_approved"
    ]
    events = []
    for number, name in enumerate(order, start=1):
        event = RunEvent(run_id="run_1", sequence=number, task_id=1, attempt=1, time=Timestamp(seconds=number))
        fill_strings(getattr(event, name), kind)
        getattr(event, name).SetInParent()
        events.append(event)
    return events


def test_record_contains_no_content() -> None:
    for kind in KINDS:
        events = events_of_every_kind(kind)
        assert sum(MARKER in str(event) for event in events) > 10
        recorded = record(Account(events))
        assert recorded.tasks[0].outputs["text"].sha256
        assert recorded.tasks[0].arguments[0].value.sha256
        assert MARKER not in json.dumps(encode(recorded))


def test_record_uses_the_approved_plan() -> None:
    edited = plan_pb2.Plan(tasks=[task_pb2.Task(id=7, task="translation")])
    events = [
        RunEvent(run_id="run_1", run_accepted=event_pb2.RunAccepted()),
        RunEvent(task_id=1, task_planned=event_pb2.TaskPlanned(task=task_pb2.Task(id=1, task="summarization"))),
        RunEvent(plan_approved=event_pb2.PlanApproved(plan=edited)),
    ]
    assert [task.task for task in record(Account(events)).tasks] == ["translation"]


BY = model_pb2.Candidate(
    model_id="m", revision="c1", expert="lite", expert_version="0.3", location=model_pb2.MODEL_LOCATION_INTERNAL
)


def at(seconds: int, **fields: Any) -> RunEvent:
    return RunEvent(run_id="run_1", time=Timestamp(seconds=seconds), **fields)


def run_events() -> Sequence[RunEvent]:
    spec = run_pb2.RunSpec(request="Read it", bypass_memo=True, inference_mode=model_pb2.INFERENCE_MODE_LOCAL)
    spec.inputs.add(name="file1").value.artifact.CopyFrom(artifact_pb2.Artifact(sha256="ab", media_type="image/png"))
    caller = caller_pb2.Caller(tenant="a", key_id="key_1", policy=caller_pb2.DATA_POLICY_LOCAL)
    task = task_pb2.Task(id=1, task="image-to-text", parameters_json='{"top_k":2,"voice":"x"}')
    task.arguments["image"].input.name = "file1"
    speech_task = task_pb2.Task(id=2, task="text-to-speech")
    speech_task.arguments["text"].reference.CopyFrom(task_pb2.Reference(task_id=1, output="text"))
    result = run_pb2.TaskResult(task_id=1, by=BY, seed=5, outputs={"text": artifact_pb2.Value(text="hello")})
    reused_result = run_pb2.TaskResult(
        task_id=2, by=BY, made_by_run="run_0", outputs={"data": artifact_pb2.Value(json='{"b":1, "a":2}')}
    )
    llm = plan_pb2.Decision(controller=CONTROLLER_LLM, llm_model="big", version="prompt:12", fell_back_because="")
    return [
        at(1, run_accepted=event_pb2.RunAccepted(spec=spec, conversation_id="run_1", caller=caller)),
        at(2, task_id=1, task_planned=event_pb2.TaskPlanned(task=task)),
        at(2, task_id=2, task_planned=event_pb2.TaskPlanned(task=speech_task)),
        at(3, plan_completed=event_pb2.PlanCompleted(decision=llm)),
        at(
            4,
            task_id=1,
            task_selected=event_pb2.TaskSelected(candidates=[BY], determinism=task_pb2.DETERMINISM_NUMERIC),
        ),
        at(5, task_id=1, attempt=1, task_started=event_pb2.TaskStarted(by=BY)),
        at(
            6,
            task_id=1,
            attempt=1,
            attempt_failed=event_pb2.AttemptFailed(
                failure=failure_pb2.Failure(reason="MODEL_FAILED", message="no"), by=BY, next=event_pb2.NEXT_STEP_RETRY
            ),
        ),
        at(7, task_id=1, attempt=2, task_started=event_pb2.TaskStarted(by=BY)),
        at(8, task_id=1, attempt=2, task_ended=event_pb2.TaskEnded(state=run_pb2.TASK_STATE_SUCCEEDED, result=result)),
        at(8, task_id=2, task_ended=event_pb2.TaskEnded(state=run_pb2.TASK_STATE_REUSED, result=reused_result)),
        at(9, taken_over=event_pb2.TakenOver(owner="b")),
        at(9, answer_chunk=event_pb2.AnswerChunk(text="he")),
        at(
            9,
            answer_chunk=event_pb2.AnswerChunk(text="llo", decision=plan_pb2.Decision(controller=CONTROLLER_COMPOSED)),
        ),
        at(10, run_ended=event_pb2.RunEnded(state=run_pb2.RUN_STATE_COMPLETED)),
    ]


def test_record_names_models_and_decisions() -> None:
    recorded = encode(record(Account(run_events())))
    hello = {"sha256": hashlib.sha256(b"hello").hexdigest(), "kind": "text", "size_bytes": 5}
    assert recorded["caller"] == {"tenant": "a", "key_id": "key_1"}
    assert recorded["policy"] == "local"
    assert recorded["create_time"] == "1970-01-01T00:00:01Z"
    assert recorded["state"] == "completed"
    assert recorded["llm_models"] == ["big"]
    assert recorded["planning"][0]["version"] == "prompt:12"
    assert recorded["answer"] == hello
    assert recorded["takeovers"] == 1
    description, speech = recorded["tasks"]
    by = {"model_id": "m", "revision": "c1", "expert": "lite", "expert_version": "0.3", "location": "internal"}
    assert description["model"] == by
    assert description["seed"] == 5
    assert description["determinism"] == "numeric"
    assert description["arguments"][0]["input"] == 1
    assert description["parameters"][0] == {"name": "top_k", "number": 2}
    assert description["parameters"][1]["digest"]["sha256"] == hashlib.sha256(b"x").hexdigest()
    assert [
        (attempt["attempt"], attempt.get("reason"), attempt.get("next")) for attempt in description["attempts"]
    ] == [
        (1, "MODEL_FAILED", "retry"),
        (2, None, None),
    ]
    assert speech["reused"] is True
    assert speech["reused_from_run"] == "run_0"
    assert speech["arguments"][0]["value"] == hello
    assert speech["outputs"]["data"]["sha256"] == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()


def test_record_matches_its_schema() -> None:
    validator = Draft202012Validator(record_schema())
    Draft202012Validator.check_schema(validator.schema)
    for events in (run_events(), events_of_every_kind("text"), [at(1, run_accepted=event_pb2.RunAccepted())]):
        validator.validate(encode(record(Account(events))))
    assert not validator.is_valid({**encode(record(Account(run_events()))), "version": 2})
