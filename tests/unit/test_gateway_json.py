import json
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import code_pb2

from gateway.json_decoder import decode
from gateway.json_encoder import dumps, encode
from gateway.json_text import loads
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent, TaskEnded
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.model_pb2 import (
    INFERENCE_MODE_LOCAL,
    MODEL_LOCATION_INTERNAL,
    MODEL_STATE_READY,
    SELECTION_POLICY_RANK,
    Candidate,
    ModelCard,
)
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import (
    ON_DISCONNECT_CANCEL,
    ROLE_USER,
    RUN_MODE_PLAN,
    RUN_STATE_AWAITING_APPROVAL,
    RUN_STATE_COMPLETED,
    Run,
    RunSpec,
    TaskResult,
    Turn,
)
from protos.hugginggpt.v1.task_pb2 import (
    DETERMINISM_NONE,
    Argument,
    ArgumentList,
    InputRef,
    Parameter,
    Reference,
    Task,
    TaskSpec,
)
from protos.hugginggpt.v1.usage_pb2 import Budget
from services.common.errors import InvalidRequest

SHA = "ab" * 32
PICTURE = Artifact(sha256=SHA, media_type="image/png", size_bytes=5_000_000_000, name="sign.png")
PICTURE_JSON = {"sha256": SHA, "media_type": "image/png", "size_bytes": 5_000_000_000, "name": "sign.png"}


def text(content: str) -> Argument:
    return Argument(value=Value(text=content))


def structured(content: Any) -> Argument:
    return Argument(value=Value(json=json.dumps(content, separators=(",", ":"))))


ARGUMENTS = [
    (text("hello"), "hello"),
    (text(""), ""),
    (Argument(value=Value(artifact=PICTURE)), {"artifact": PICTURE_JSON}),
    (Argument(reference=Reference(task_id=1, output="text")), {"task_id": 1, "output": "text"}),
    (Argument(input=InputRef(name="file1")), {"input": "file1"}),
    (structured(5), 5),
    (structured(2.5), 2.5),
    (structured(None), None),
    (structured(False), False),
    (structured({"a": [1, {"b": None}]}), {"a": [1, {"b": None}]}),
    (structured("a string that is JSON"), {"json": "a string that is JSON"}),
    (structured([1, "two"]), {"json": [1, "two"]}),
    (structured({"input": "not a reference"}), {"json": {"input": "not a reference"}}),
    (structured({"task_id": 1}), {"json": {"task_id": 1}}),
    (structured({"json": 1}), {"json": {"json": 1}}),
    (
        Argument(list=ArgumentList(items=[text("a"), Argument(input=InputRef(name="b")), structured([1])])),
        ["a", {"input": "b"}, {"json": [1]}],
    ),
    (Argument(list=ArgumentList()), []),
]


@pytest.mark.parametrize(("argument", "expected"), ARGUMENTS, ids=lambda side: str(side)[:40])
def test_argument_round_trip(argument: Argument, expected: Any) -> None:
    written = encode(argument)
    assert written == expected
    assert decode(Argument, json.loads(dumps(written))) == argument


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Value(text="a"), "a"),
        (Value(json='[{"label":"joy","score":0.98}]'), [{"label": "joy", "score": 0.98}]),
        (Value(json='{"input":"b"}'), {"input": "b"}),
        (Value(json='"a"'), {"json": "a"}),
        (Value(artifact=PICTURE), {"artifact": PICTURE_JSON}),
    ],
    ids=str,
)
def test_value_round_trip(value: Value, expected: Any) -> None:
    assert encode(value) == expected
    assert decode(Value, expected) == value


TASK = Task(
    id=3,
    task="object-detection",
    arguments={"image": Argument(input=InputRef(name="file1"))},
    parameters_json='{"threshold":0.5}',
    pinned_model="a/b",
    pinned_revision="c0ffee",
    source="find faces",
)
TASK_JSON = {
    "id": 3,
    "task": "object-detection",
    "arguments": {"image": {"input": "file1"}},
    "parameters": {"threshold": 0.5},
    "pinned_model": "a/b",
    "pinned_revision": "c0ffee",
    "source": "find faces",
}
SPEC = RunSpec(
    request="Grüße",
    inputs=[
        NamedValue(name="a", value=Value(text="x")),
        NamedValue(name="b", value=Value(json='"x"')),
        NamedValue(name="c", value=Value(artifact=PICTURE)),
    ],
    plan=Plan(tasks=[TASK]),
    mode=RUN_MODE_PLAN,
    inference_mode=INFERENCE_MODE_LOCAL,
    selection_policy=SELECTION_POLICY_RANK,
    budget=Budget(llm_tokens=2**40, wall_time=Duration(seconds=3, nanos=480_726_000), tasks=3),
    on_disconnect=ON_DISCONNECT_CANCEL,
    idempotency_key="k",
    parent_run_id="run_1",
    history=[Turn(role=ROLE_USER, text="hi", attachments=[NamedValue(name="d", value=Value(text="y"))])],
    bypass_memo=True,
)
SPEC_JSON = {
    "request": "Grüße",
    "inputs": [
        {"name": "a", "text": "x"},
        {"name": "b", "json": "x"},
        {"name": "c", "artifact": PICTURE_JSON},
    ],
    "plan": [TASK_JSON],
    "mode": "plan",
    "inference_mode": "local",
    "selection_policy": "rank",
    "budget": {"llm_tokens": 2**40, "wall_time": 3.480726, "tasks": 3},
    "on_disconnect": "cancel",
    "idempotency_key": "k",
    "parent_run_id": "run_1",
    "history": [{"role": "user", "text": "hi", "attachments": [{"name": "d", "text": "y"}]}],
    "bypass_memo": True,
    "metadata": {},
}
ENDED = TaskEnded(result=TaskResult(task_id=2, outputs={"labels": Value(json="[1]"), "text": Value(text="")}))

MESSAGES: list[tuple[Message, Any]] = [
    (TASK, TASK_JSON),
    (Task(), {"id": 0, "arguments": {}}),
    (SPEC, SPEC_JSON),
    (
        Run(run_id="r", state=RUN_STATE_AWAITING_APPROVAL, last_sequence=2**60),
        {
            "run_id": "r",
            "state": "awaiting_approval",
            "tasks": [],
            "notes": [],
            "last_sequence": 2**60,
        },
    ),
    (
        RunEvent(
            run_id="r",
            sequence=7,
            time=Timestamp(seconds=1_900_000_000, nanos=5_000_000),
            run_ended=RunEnded(state=RUN_STATE_COMPLETED),
        ),
        {
            "run_id": "r",
            "sequence": 7,
            "time": "2030-03-17T17:46:40.005Z",
            "task_id": 0,
            "attempt": 0,
            "run_ended": {"state": "completed"},
        },
    ),
    (ENDED, {"result": {"task_id": 2, "attempt": 0, "seed": 0, "outputs": {"labels": [1], "text": ""}}}),
    (
        Failure(reason="MODEL_FAILED", message="nan", retry_after=Duration(nanos=250_000_000)),
        {"reason": "MODEL_FAILED", "message": "nan", "retry_after": 0.25},
    ),
    (Failure(code=code_pb2.DATA_LOSS), {"code": "DATA_LOSS"}),
    (
        ModelCard(id="a/b", location=MODEL_LOCATION_INTERNAL, state=MODEL_STATE_READY, downloads=3),
        {
            "id": "a/b",
            "downloads": 3,
            "likes": 0,
            "languages": [],
            "parameter_count": 0,
            "outputs": [],
            "location": "internal",
            "state": "ready",
            "loaded_bytes": 0,
            "exceeds_memory": False,
        },
    ),
    (
        TaskSpec(determinism=DETERMINISM_NONE, parameters=[Parameter(name="k", json_schema='{"minimum":1}')]),
        {
            "inputs": [],
            "outputs": [],
            "parameters": [{"name": "k", "json_schema": {"minimum": 1}}],
            "determinism": "none",
            "examples": [],
        },
    ),
    (Candidate(score=float("nan")), {"dormant": False}),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES, ids=lambda side: type(side).__name__)
def test_message_is_encoded_with_proto_names_and_numbers(message: Message, expected: Any) -> None:
    assert json.loads(dumps(encode(message))) == expected


def test_run_spec_round_trip() -> None:
    assert decode(RunSpec, SPEC_JSON) == SPEC


def test_printed_plan_is_decoded() -> None:
    printed = {
        "id": 3,
        "task": "object-detection",
        "args": {"image": {"input": "file1"}},
        "parameters": {"threshold": 0.5},
        "model": "a/b",
        "revision": None,
        "depends_on": [1, 2],
    }
    (task,) = decode(RunSpec, {"plan": [printed]}).plan.tasks
    assert task.pinned_model == "a/b"
    assert task.pinned_revision == ""
    assert task.parameters_json == '{"threshold":0.5}'
    assert task.arguments["image"].input.name == "file1"


def test_list_for_single_value_port_is_json() -> None:
    tables = {"table": [["a", "b"], [1, 2]], "question": ["which", "one"]}
    task = decode(Task, {"id": 1, "task": "table-question-answering", "args": tables})
    assert task.arguments["table"].value.json == '[["a","b"],[1,2]]'
    assert task.arguments["question"].value.json == '["which","one"]'
    with_references = decode(Task, {"task": "table-question-answering", "args": {"table": [{"input": "file1"}]}})
    assert with_references.arguments["table"].HasField("list")


def test_largest_proto_numbers_stay_exact() -> None:
    assert json.loads(dumps(encode(TaskResult(seed=2**53 - 1))))["seed"] == 2**53 - 1


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ({"request": 5}, "request"),
        ({"request": "\ud800"}, "request"),
        ({"mode": "fast"}, "mode"),
        ({"mode": 1}, "mode"),
        ({"bypass_memo": "yes"}, "bypass_memo"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": [{"name": "a"}]}, "inputs[0]"),
        ({"inputs": [{"text": "a", "json": 1}]}, "inputs[0]"),
        ({"inputs": [{"text": "a", "kind": 1}]}, "inputs[0]"),
        ({"inputs": ["a"]}, "inputs[0]"),
        ({"inputs": [{"artifact": {"sha256": 5}}]}, "inputs[0].artifact.sha256"),
        ({"plan": "first"}, "plan"),
        ({"plan": [{"id": "1"}]}, "plan[0].id"),
        ({"plan": [{"id": 2**31}]}, "plan[0].id"),
        ({"plan": [{"id": True}]}, "plan[0].id"),
        ({"plan": [{"args": {"text": {"task_id": 1.5}}}]}, "plan[0].args.text.task_id"),
        ({"plan": [{"args": {"text": [["a"]]}}]}, "plan[0].args.text"),
        ({"plan": [{"args": {"text": {"input": 1}}}]}, "plan[0].args.text.input"),
        ({"plan": [{"parameters": [1]}]}, "plan[0].parameters"),
        ({"plan": [{"task": "a", "dep": [1]}]}, "plan[0]"),
        ({"budget": {"wall_time": -1}}, "budget.wall_time"),
        ({"budget": {"wall_time": 1e300}}, "budget.wall_time"),
        ({"budget": {"wall_time": 10**400}}, "budget.wall_time"),
        ({"budget": {"llm_tokens": 2**63}}, "budget.llm_tokens"),
        ({"unknown": 1}, ""),
        ([], ""),
    ],
    ids=str,
)
def test_decode_error_names_the_field(content: Any, where: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(RunSpec, content)
    assert caught.value.port == where
    assert caught.value.remedy


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000, b'{"a": ' + b"9" * 5_000 + b"}"],
    ids=["empty", "cut", "not UTF-8", "NaN", "deep", "long number"],
)
def test_invalid_json_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        loads(content)
    assert caught.value.remedy


@pytest.mark.parametrize(("levels", "taken"), [(100, True), (101, False), (900, False)])
def test_too_deeply_nested_json_is_rejected(levels: int, taken: bool) -> None:
    deep = json.loads('{"a":' * levels + '"[[[{{{\\\\\\""' + "}" * levels)
    spec = {"plan": [{"args": {"x": {"json": deep}}}]}
    if taken:
        assert encode(decode(RunSpec, spec))["plan"][0]["arguments"]["x"] == deep
        return
    with pytest.raises(InvalidRequest):
        decode(RunSpec, spec)


def test_many_adjacent_brackets_are_not_deep() -> None:
    assert decode(Value, [[]] * 1000).json == "[" + ",".join(["[]"] * 1000) + "]"


def test_nested_argument_lists_are_rejected_at_any_depth() -> None:
    lists: Any = []
    for _ in range(900):
        lists = [lists]
    with pytest.raises(InvalidRequest):
        decode(RunSpec, {"plan": [{"args": {"x": lists}}]})


def test_status_code_is_read_as_it_is_written() -> None:
    failure = Failure(code=code_pb2.UNAVAILABLE, message="no expert")
    assert decode(Failure, encode(failure)) == failure
