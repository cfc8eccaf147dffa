"""JSON Schemas of what is sent and what is taken, made from the protos by the encoder's own rules."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.json_encoder import JSON_TEXT, enum_names
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Argument, Task

TAKEN = "Input"
"""What the names of schemas of taken messages end with: nothing in them is required."""

_WRITTEN: Mapping[str, dict[str, Any]] = {
    Value.DESCRIPTOR.full_name: {
        "description": "Text, JSON, or an artifact. JSON that is a string or looks like a form is wrapped in `json`.",
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
"""Of the name of an artifact."""

_DIGEST = Artifact.DESCRIPTOR.fields_by_name["sha256"].full_name

_SPELLINGS = {"args": "arguments", "model": "pinned_model", "revision": "pinned_revision"}

_NUMBERS: Mapping[int, dict[str, Any]] = {
    FieldDescriptor.TYPE_INT32: {"type": "integer"},
    FieldDescriptor.TYPE_INT64: {"type": "integer"},
    FieldDescriptor.TYPE_UINT64: {"type": "integer", "minimum": 0},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
}


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def listed(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The schema of a list, with what stands beside its data."""
    properties = {"object": {"const": "list"}, "data": {"type": "array", "items": item}, **more}
    return {"type": "object", "required": ["object", "data"], "properties": properties}


def event_stream(message: str, id_means: str) -> dict[str, Any]:
    """The schema of server-sent events whose data is a message."""
    text = {"type": "string"}
    data = {**text, "contentMediaType": "application/json", "contentSchema": reference(message)}
    return {
        "description": "A stream of server-sent events; or, for readers that take it apart, one of them.",
        "anyOf": [
            text,
            {
                "type": "object",
                "required": ["event", "data"],
                "properties": {"id": {**text, "description": id_means}, "event": text, "data": data},
            },
        ],
    }


def schemas(roots: Sequence[Any], *, taken: bool) -> dict[str, Any]:
    """The schemas of messages and of all they hold, by name.

    Args:
        roots: descriptors of the messages.
        taken: as requests have them; else as answers do.
    """
    found: dict[str, Any] = {}
    waiting = list(roots)
    while waiting:
        descriptor = waiting.pop()
        if descriptor.name + (TAKEN if taken else "") not in found:
            found[descriptor.name + (TAKEN if taken else "")] = _message(descriptor, taken=taken)
            waiting.extend(_held(descriptor))
    return dict(sorted(found.items()))


def _held(descriptor: Descriptor) -> Iterator[Descriptor]:
    for field in descriptor.fields:
        one = _element(field).message_type
        if one and one.full_name not in _WRITTEN and one.full_name != Plan.DESCRIPTOR.full_name:
            yield one
        elif one and one.full_name == Plan.DESCRIPTOR.full_name:
            yield Task.DESCRIPTOR


def _message(descriptor: Descriptor, *, taken: bool) -> dict[str, Any]:
    if descriptor.full_name == NamedValue.DESCRIPTOR.full_name:
        return _named_value(taken=taken)
    properties = {JSON_TEXT.get(field.name, field.name): _field(field, taken=taken) for field in descriptor.fields}
    if not taken:
        always = [JSON_TEXT.get(field.name, field.name) for field in descriptor.fields if _always(field)]
        sent = {"type": "object", "properties": properties}
        return {**sent, "required": always} if always else sent
    properties = {name: _or_null(schema) for name, schema in properties.items()}
    if descriptor.full_name == Task.DESCRIPTOR.full_name:
        properties |= {other: properties[name] for other, name in _SPELLINGS.items()}
        properties["depends_on"] = {"description": "Ignored: it follows from the arguments."}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Null is as good as nothing."""
    return {"anyOf": [schema, {"type": "null"}]} if {"type", "$ref"} & schema.keys() else schema


def _named_value(*, taken: bool) -> dict[str, Any]:
    artifact = reference("Artifact" + (TAKEN if taken else ""))
    forms = {"text": {"type": "string"}, "json": {}, "artifact": artifact}
    if taken:
        forms["file_id"] = {"type": "string", "description": "Of a file of `/v1/files`."}
        forms["url"] = {
            "type": "string",
            "format": "uri",
            "description": "Of a file: it is fetched before the run begins.",
        }
    return {
        "type": "object",
        "properties": {"name": {"type": "string"}, **forms},
        "oneOf": [{"required": [form]} for form in forms],
    }


def _field(field: FieldDescriptor, *, taken: bool) -> dict[str, Any]:
    one = _one(_element(field), taken=taken)
    if field.message_type and field.message_type.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": one}
    return {"type": "array", "items": one} if field.is_repeated else one


def _one(field: FieldDescriptor, *, taken: bool) -> dict[str, Any]:
    if message := field.message_type:
        if message.full_name == Plan.DESCRIPTOR.full_name:
            return {"type": "array", "items": reference("Task" + (TAKEN if taken else ""))}
        return _WRITTEN.get(message.full_name) or reference(message.name + (TAKEN if taken else ""))
    if field.enum_type:
        return {"type": "string", "enum": list(enum_names(field.enum_type).values())}
    if field.name in JSON_TEXT:
        return {"type": "object"}
    if field.full_name == _DIGEST:
        return {"type": "string", "pattern": DIGEST_PATTERN}
    return _NUMBERS.get(field.type, {"type": "string"})


def _element(field: FieldDescriptor) -> FieldDescriptor:
    message = field.message_type
    return message.fields_by_name["value"] if message and message.GetOptions().map_entry else field


def _always(field: FieldDescriptor) -> bool:
    return field.is_repeated or (not field.has_presence and field.type in _NUMBERS)
