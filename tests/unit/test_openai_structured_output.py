import json
from typing import Any

import pytest

from gateway.openai import json_schema
from gateway.openai.json_fields import Fields
from gateway.openai.output_facts import collect_facts
from gateway.openai.response_format import of_chat
from gateway.openai.structured_output import UnfillableSchema, fill_schema
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.run_pb2 import TaskResult, TaskStatus
from protos.hugginggpt.v1.task_pb2 import Task
from services.common.errors import InvalidRequest

SITE = "http://h"
OBJECTS = [
    {"label": "cat", "score": 0.9, "box": {"xmin": 1.0, "ymin": 2.0, "xmax": 3.0, "ymax": 4.0}},
    {"label": "dog", "score": 0.8, "box": {"xmin": 5.0, "ymin": 6.0, "xmax": 7.0, "ymax": 8.0}},
]


def succeeded_task(number: int, kind: str, **outputs: Any) -> TaskStatus:
    values = {
        port: Value(artifact=given)
        if isinstance(given, Artifact)
        else Value(text=given)
        if isinstance(given, str)
        else Value(json=json.dumps(given))
        for port, given in outputs.items()
    }
    return TaskStatus(task=Task(id=number, task=kind), result=TaskResult(task_id=number, outputs=values))


TASKS = (
    succeeded_task(
        1, "object-detection", objects=OBJECTS, text="a cat and a dog", image=Artifact(sha256="a" * 64, name="b.png")
    ),
    succeeded_task(2, "text-classification", labels=[{"label": "NEGATIVE", "score": 0.7}], text="NEGATIVE (70 %)"),
    succeeded_task(3, "summarization", text="It is short."),
    succeeded_task(4, "document-question-answering", text="42", details={"score": 0.5}),
)


def object_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
BOX = object_schema(xmin=NUMBER, ymin=NUMBER, xmax=NUMBER, ymax=NUMBER)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            object_schema(objects={"type": "array", "items": object_schema(label=TEXT, score=NUMBER, box=BOX)}),
            {"objects": OBJECTS},
        ),
        (object_schema(objects={"type": "array", "items": TEXT}), {"objects": ["cat", "dog"]}),
        (
            object_schema(found={"type": "array", "items": object_schema(label=TEXT, bounding_box=BOX)}),
            {"found": [{"label": each["label"], "bounding_box": each["box"]} for each in OBJECTS]},
        ),
        (
            object_schema(sentiment={"enum": ["negative", "positive"]}, confidence=NUMBER),
            {"sentiment": "negative", "confidence": 0.7},
        ),
        (object_schema(mood={"type": "string", "enum": ["Negative", "Positive"]}), {"mood": "Negative"}),
        (object_schema(summary=TEXT), {"summary": "It is short."}),
        (object_schema(answer={"type": "integer"}), {"answer": 42}),
        (object_schema(message=TEXT), {"message": "In words."}),
        (object_schema(image_url=TEXT), {"image_url": f"{SITE}/v1/artifacts/{'a' * 64}"}),
        (
            object_schema(summary=TEXT, price={"anyOf": [NUMBER, {"type": "null"}]}),
            {"summary": "It is short.", "price": None},
        ),
        (object_schema(summary=TEXT, price={"type": ["number", "null"]}), {"summary": "It is short.", "price": None}),
        ({"$defs": {"S": object_schema(summary=TEXT)}, "$ref": "#/$defs/S"}, {"summary": "It is short."}),
        (
            object_schema(inner=object_schema(summary=TEXT, message=TEXT)),
            {"inner": {"summary": "It is short.", "message": "In words."}},
        ),
        (
            {"type": "array", "items": object_schema(label=TEXT, box=BOX)},
            [{"label": o["label"], "box": o["box"]} for o in OBJECTS],
        ),
    ],
    ids=lambda side: json.dumps(side)[:50],
)
def test_schema_is_filled_from_task_outputs(schema: dict[str, Any], expected: Any) -> None:
    json_schema.check(schema, "schema")
    assert fill_schema(schema, collect_facts(TASKS, "In words.", SITE)) == expected


@pytest.mark.parametrize(
    "schema",
    [
        object_schema(price=NUMBER),
        object_schema(dishes={"type": "array", "items": TEXT}),
        object_schema(summary={"type": "string", "minLength": 100}),
        object_schema(mood={"enum": ["bored"]}),
        object_schema(sentiment=TEXT, age={"type": "integer"}),
        object_schema(person=object_schema(surname=TEXT)),
        {"type": "object", "properties": {}, "additionalProperties": False},
    ],
    ids=lambda schema: json.dumps(schema)[:50],
)
def test_missing_values_are_never_invented(schema: dict[str, Any]) -> None:
    json_schema.check(schema, "schema")
    with pytest.raises(UnfillableSchema):
        fill_schema(schema, collect_facts(TASKS, "In words.", SITE))


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, TEXT]}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {
            "$defs": {
                str(n): object_schema(**{f"p{m}": {"$ref": f"#/$defs/{n + 1}"} for m in range(9)}) for n in range(9)
            }
            | {"9": object_schema(x=NUMBER)},
            "$ref": "#/$defs/0",
        },
        {
            "$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 3} for n in range(20)}
            | {"20": {"enum": ["bored"]}},
            "$ref": "#/$defs/0",
        },
    ],
    ids=["itself", "round", "broad", "choices"],
)
@pytest.mark.timeout(20)
def test_schema_cost_is_bounded(schema: dict[str, Any]) -> None:
    json_schema.check(schema, "schema")
    with pytest.raises(UnfillableSchema):
        fill_schema(schema, collect_facts(TASKS, "In words.", SITE))


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"type": "nonsense"},
        {"properties": {"a": {"pattern": "(a+)+$"}}},
        {"allOf": [{"type": "string"}]},
        {"$ref": "http://127.0.0.1/schema.json"},
        {"$ref": "#/$defs/missing"},
        {"$id": "http://x/", "type": "string"},
        {"type": "object", "properties": {f"p{n}": {} for n in range(2000)}},
    ],
    ids=lambda schema: json.dumps(schema)[:50],
)
def test_unsupported_schemas_are_rejected(schema: Any) -> None:
    sent = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    with pytest.raises(InvalidRequest) as raised:
        of_chat(Fields(sent))
    assert raised.value.reason == "SCHEMA"
    assert raised.value.remedy


def test_names_of_properties_are_not_keywords() -> None:
    json_schema.check(object_schema(pattern=TEXT, allOf=TEXT, enum={"enum": [{"pattern": "x"}]}), "schema")
