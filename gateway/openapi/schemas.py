"""JSON Schemas of requests and responses, derived from the protos by the rules of the JSON encoder and decoder."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.json_encoder import JSON_TEXT, enum_names
from gateway.provenance.record import VERSION
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem, BatchSpec, NewItem
from protos.hugginggpt.v1.gateway_pb2 import SavePipelineRequest
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.record_pb2 import RunRecord
from protos.hugginggpt.v1.task_pb2 import Argument, Task

INPUT_SUFFIX = "Input"
"""Suffix of the schema names of request messages, in which no field is required."""

_SPECIAL_SCHEMAS: Mapping[str, dict[str, Any]] = {
    Value.DESCRIPTOR.full_name: {
        "description": "Text, JSON, or an artifact. JSON that could be read as one of the others is wrapped in `json`.",
        "examples": ["some text", {"artifact": {"sha256": "9f86d081…"}}, [{"label": "joy", "score": 0.98}]],
    },
    Argument.DESCRIPTOR.full_name: {
        "description": "A value, an output of an earlier task, an input of the run, or a list of these.",
        "examples": ["some text", {"task_id": 1, "output": "text"}, {"input": "file1"}, {"json": [1, 2]}],
    },
    Timestamp.DESCRIPTOR.full_name: {"type": "string", "format": "date-time"},
    Duration.DESCRIPTOR.full_name: {"type": "number", "minimum": 0, "description": "Seconds."},
}

DIGEST_PATTERN = "^[0-9a-f]{64}$"
"""Pattern of an artifact's digest."""

_DIGEST = Artifact.DESCRIPTOR.fields_by_name["sha256"].full_name

_TASK_ALIASES = {"args": "arguments", "model": "pinned_model", "revision": "pinned_revision"}

_SCALAR_SCHEMAS: Mapping[int, dict[str, Any]] = {
    FieldDescriptor.TYPE_INT32: {"type": "integer"},
    FieldDescriptor.TYPE_INT64: {"type": "integer"},
    FieldDescriptor.TYPE_UINT64: {"type": "integer", "minimum": 0},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
}


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def list_schema(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Returns the schema of a list response with additional top-level properties."""
    properties = {"object": {"const": "list"}, "data": {"type": "array", "items": item}, **more}
    return {"type": "object", "required": ["object", "data"], "properties": properties}


def event_stream(message: str, id_description: str) -> dict[str, Any]:
    """Returns the schema of a server-sent event stream whose data is a message."""
    text = {"type": "string"}
    data = {**text, "contentMediaType": "application/json", "contentSchema": reference(message)}
    return {
        "description": "A stream of server-sent events. The object form describes one parsed event.",
        "anyOf": [
            text,
            {
                "type": "object",
                "required": ["event", "data"],
                "properties": {"id": {**text, "description": id_description}, "event": text, "data": data},
            },
        ],
    }


def schemas(roots: Sequence[Any], *, as_input: bool) -> dict[str, Any]:
    """Returns the schemas of messages and of all messages they refer to, by name.

    Args:
        roots: descriptors of the messages.
        as_input: for request messages: no field is required, and null and aliases are allowed; else for responses.
    """
    found: dict[str, Any] = {}
    waiting = list(roots)
    while waiting:
        descriptor = waiting.pop()
        if descriptor.name + (INPUT_SUFFIX if as_input else "") not in found:
            found[descriptor.name + (INPUT_SUFFIX if as_input else "")] = _message(descriptor, as_input=as_input)
            waiting.extend(_referenced_messages(descriptor))
    return dict(sorted(found.items()))


def _referenced_messages(descriptor: Descriptor) -> Iterator[Descriptor]:
    for field in descriptor.fields:
        element = _element(field).message_type
        if element and element.full_name not in _SPECIAL_SCHEMAS and element.full_name != Plan.DESCRIPTOR.full_name:
            yield element
        elif element and element.full_name == Plan.DESCRIPTOR.full_name:
            yield Task.DESCRIPTOR


def _message(descriptor: Descriptor, *, as_input: bool) -> dict[str, Any]:
    if descriptor.full_name == NamedValue.DESCRIPTOR.full_name:
        return _named_value(as_input=as_input)
    names = {field: JSON_TEXT.get(field.name, field.name) for field in descriptor.fields}
    properties = {name: _field(field, as_input=as_input) for field, name in names.items()}
    if not as_input:
        required = [JSON_TEXT.get(field.name, field.name) for field in descriptor.fields if _is_always_sent(field)]
        sent = {"type": "object", "properties": properties}
        return {**sent, "required": required} if required else sent
    properties = {name: _nullable(schema) for name, schema in properties.items()}
    if descriptor.full_name == Task.DESCRIPTOR.full_name:
        properties |= {other: properties[name] for other, name in _TASK_ALIASES.items()}
        properties["depends_on"] = {"description": "Ignored: derived from the arguments."}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Allows null, which the decoder treats like an absent field."""
    return {"anyOf": [schema, {"type": "null"}]} if {"type", "$ref"} & schema.keys() else schema


def _named_value(*, as_input: bool) -> dict[str, Any]:
    artifact = reference("Artifact" + (INPUT_SUFFIX if as_input else ""))
    kinds = {"text": {"type": "string"}, "json": {}, "artifact": artifact}
    if as_input:
        kinds["file_id"] = {"type": "string", "description": "Id of a file of `/v1/files`."}
        kinds["url"] = {
            "type": "string",
            "format": "uri",
            "description": "URL of a file, which is fetched before the run starts.",
        }
    value = {"type": "object", "properties": {"name": {"type": "string"}, **kinds}}
    each = [{"required": [kind]} for kind in kinds]
    if as_input:
        return {**value, "oneOf": each}
    # The same condition without oneOf, which client generators turn into an untyped value.
    several = [{"required": list(pair)} for pair in combinations(kinds, 2)]
    return {**value, "not": {"anyOf": [*several, {"not": {"anyOf": each}}]}}


def _field(field: FieldDescriptor, *, as_input: bool) -> dict[str, Any]:
    element = _one(_element(field), as_input=as_input)
    if field.message_type and field.message_type.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": element}
    return {"type": "array", "items": element} if field.is_repeated else element


def _one(field: FieldDescriptor, *, as_input: bool) -> dict[str, Any]:
    if message := field.message_type:
        if message.full_name == Plan.DESCRIPTOR.full_name:
            return {"type": "array", "items": reference("Task" + (INPUT_SUFFIX if as_input else ""))}
        return _SPECIAL_SCHEMAS.get(message.full_name) or reference(message.name + (INPUT_SUFFIX if as_input else ""))
    if field.enum_type:
        return {"type": "string", "enum": list(enum_names(field.enum_type).values())}
    if field.name in JSON_TEXT:
        return {"type": "object"}
    if field.full_name == _DIGEST:
        return {"type": "string", "pattern": DIGEST_PATTERN}
    return _SCALAR_SCHEMAS.get(field.type, {"type": "string"})


def _element(field: FieldDescriptor) -> FieldDescriptor:
    message = field.message_type
    return message.fields_by_name["value"] if message and message.GetOptions().map_entry else field


def _is_always_sent(field: FieldDescriptor) -> bool:
    return field.is_repeated or (not field.has_presence and field.type in _SCALAR_SCHEMAS)


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_SECONDS_OR_NULL = {"type": ["number", "null"]}
_COST = {"type": "number", "minimum": 0, "description": "In the currency of the deployment's price table."}

RESPONSE_MESSAGES = (Pipeline.DESCRIPTOR, Batch.DESCRIPTOR, BatchItem.DESCRIPTOR)
"""Response messages that are encoded without changes."""


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


_RESULT = _object(
    index={"type": "integer", "minimum": 1},
    name=_TEXT,
    state=_TEXT,
    run_id=_TEXT_OR_NULL,
    outputs={"type": "object"},
    error={"anyOf": [_object(reason=_TEXT, message=_TEXT, remedy=_TEXT), {"type": "null"}]},
    seconds=_SECONDS_OR_NULL,
    input_tokens=_COUNT,
    output_tokens=_COUNT,
    cost=_COST,
)
_SUMMARY = _object(
    batch_id=_TEXT,
    state=_TEXT,
    counts=reference("BatchCounts"),
    seconds=_object(total={"type": "number"}, median={"type": "number"}, p95={"type": "number"}),
    input_tokens=_COUNT,
    output_tokens=_COUNT,
    cost=_COST,
    pool_seconds={"type": "object", "additionalProperties": {"type": "number"}},
    slowest={"type": "array", "items": _object(index=_COUNT, name=_TEXT, seconds={"type": "number"})},
    errors={
        "type": "array",
        "items": _object(reason=_TEXT, message=_TEXT, count=_COUNT, names={"type": "array", "items": _TEXT}),
    },
)


OWN_SCHEMAS = {
    "PipelineList": list_schema(reference("Pipeline"), next_page_token=_TEXT),
    "BatchList": list_schema(reference("Batch"), next_page_token=_TEXT),
    "BatchItemList": list_schema(reference("BatchItem"), next_page_token=_TEXT),
    "BatchResult": _RESULT,
    "BatchResults": {"type": "array", "items": reference("BatchResult"), "description": "One result per line."},
    "BatchLines": {
        "type": "array",
        "prefixItems": [reference("BatchSpec" + INPUT_SUFFIX)],
        "items": reference("NewItem" + INPUT_SUFFIX),
        "minItems": 2,
        "description": "One JSON value per line: the batch, then its items.",
    },
    "BatchSummary": _SUMMARY,
    "BatchEvents": event_stream("Batch", "Only the last one has it."),
}


def input_schemas() -> dict[str, Any]:
    """Returns the schemas of request bodies by name."""
    found = schemas([SavePipelineRequest.DESCRIPTOR, BatchSpec.DESCRIPTOR, NewItem.DESCRIPTOR], as_input=True)
    del found["SavePipelineRequest" + INPUT_SUFFIX]["properties"]["name"]
    spec = found["BatchSpec" + INPUT_SUFFIX]
    items = {"type": "array", "items": reference("NewItem" + INPUT_SUFFIX)}
    return {**found, "BatchRequest": {**spec, "properties": {**spec["properties"], "items": items}}}


WEBHOOK: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "url", "name", "created_at"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "webhook"},
        "url": {"type": "string"},
        "name": {"type": "string"},
        "created_at": {"type": "integer", "description": "Unix time in seconds."},
        "ended_at": {"type": "integer", "description": "When the receiver answered 410 Gone; no delivery follows."},
        "secret": {"type": "string", "description": "Signing secret; only returned at creation."},
        "deliveries": {
            "type": "array",
            "description": "The most recent deliveries, newest first.",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "Value of the webhook-id header."},
                    "run_id": {"type": "string", "description": "The run that ended; absent for a batch."},
                    "batch_id": {"type": "string", "description": "The batch that ended; absent for a run."},
                    "state": {"enum": ["waiting", "delivered", "failed", "withheld"]},
                    "attempts": {"type": "integer"},
                    "outcome": {"type": "string", "description": "Result of the last attempt."},
                    "created_at": {"type": "integer"},
                    "next_at": {"type": "integer", "description": "Unix time of the next attempt, in seconds."},
                },
            },
        },
    },
}


_WITHIN_API = reference("")["$ref"]


def record_schema() -> dict[str, Any]:
    """Returns the schema with all definitions inlined under $defs."""
    found = schemas([RunRecord.DESCRIPTOR], as_input=False)
    defined: dict[str, Any] = json.loads(json.dumps(found).replace(_WITHIN_API, "#/$defs/"))
    defined["RunRecord"]["properties"]["version"] = {"const": VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The record of a run",
        "$ref": "#/$defs/RunRecord",
        "$defs": defined,
    }
