"""JSON encoding of protobuf messages, used by all of the gateway's protocols.

Field names are those of the protos, enums are lower case without their prefix, times are RFC 3339, durations are
seconds. A field that contains JSON as text is written as that JSON (`parameters_json` becomes `parameters`). Numbers,
booleans, lists and maps are always written; strings, enums and messages only if they are set.

A value is a string, JSON or `{"artifact": …}`; an argument may also be `{"task_id": 1, "output": "text"}`,
`{"input": "file1"}` or a list of arguments. JSON that could be read as one of these is wrapped: `{"json": …}`.
"""

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.hugginggpt.v1.artifact_pb2 import NamedValue, Value
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Argument

Encode = Callable[[Any], Any]

JSON_TEXT: Mapping[str, str] = {"parameters_json": "parameters", "json_schema": "json_schema"}
"""Fields that contain JSON as text, and the key under which the JSON is written."""

VALUE_FORMS = frozenset({"artifact", "json"})
"""Keys that determine the kind of a value."""

ARGUMENT_FORMS = VALUE_FORMS | {"task_id", "input"}
"""Keys that determine the kind of an argument."""


def dumps(content: Any) -> bytes:
    """Serializes JSON to UTF-8 without spaces."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def encode(message: Message) -> Any:
    """Converts a message to plain Python values for json."""
    encoder: Encode = _SPECIAL.get(message.DESCRIPTOR.full_name, _fields)
    return encoder(message)


def enum_names(enum: EnumDescriptor) -> dict[int, str]:
    """JSON names of enum values: RUN_STATE_COMPLETED is "completed"; the unspecified value has none.

    gRPC status codes keep their standard names, such as "DATA_LOSS"; OK, the value of an empty field, has none.
    """
    if enum.full_name == "google.rpc.Code":
        return {value.number: value.name for value in enum.values if value.number}
    prefix = enum.values[0].name.rpartition("_")[0] + "_"
    names = {value.number: value.name.removeprefix(prefix).lower() for value in enum.values}
    return {number: name for number, name in names.items() if name != "unspecified"}


def _value(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "text":
            return value.text
        case "artifact":
            return {"artifact": _fields(value.artifact)}
        case "json":
            return _wrapped(json.loads(value.json), VALUE_FORMS)
    return None


def _argument(argument: Argument) -> Any:
    match argument.WhichOneof("kind"):
        case "value" if argument.value.WhichOneof("kind") == "json":
            content = json.loads(argument.value.json)
            return {"json": content} if isinstance(content, list) else _wrapped(content, ARGUMENT_FORMS)
        case "value":
            return _value(argument.value)
        case "reference":
            return _fields(argument.reference)
        case "input":
            return {"input": argument.input.name}
        case "list":
            return [_argument(item) for item in argument.list.items]
    return None


def _wrapped(content: Any, forms: frozenset[str]) -> Any:
    ambiguous = isinstance(content, str) or (isinstance(content, dict) and not forms.isdisjoint(content))
    return {"json": content} if ambiguous else content


def _named_value(named: NamedValue) -> dict[str, Any]:
    match named.value.WhichOneof("kind"):
        case "text":
            return {"name": named.name, "text": named.value.text}
        case "artifact":
            return {"name": named.name, "artifact": _fields(named.value.artifact)}
        case "json":
            return {"name": named.name, "json": json.loads(named.value.json)}
    return {"name": named.name}


_SPECIAL: Mapping[str, Encode] = {
    Value.DESCRIPTOR.full_name: _value,
    Argument.DESCRIPTOR.full_name: _argument,
    NamedValue.DESCRIPTOR.full_name: _named_value,
    Plan.DESCRIPTOR.full_name: lambda plan: [_fields(task) for task in plan.tasks],
    Timestamp.DESCRIPTOR.full_name: Timestamp.ToJsonString,
    Duration.DESCRIPTOR.full_name: lambda duration: round(duration.seconds + duration.nanos / 1e9, 9),
}


def _fields(message: Message) -> dict[str, Any]:
    result = {}
    for name, key, optional, encoder in _layout(message.DESCRIPTOR):
        if optional and not message.HasField(name):
            continue
        content = encoder(getattr(message, name))
        if content is not None:
            result[key] = content
    return result


@cache
def _layout(descriptor: Descriptor) -> tuple[tuple[str, str, bool, Encode], ...]:
    return tuple(
        (field.name, JSON_TEXT.get(field.name, field.name), field.has_presence, _encoder(field))
        for field in descriptor.fields
    )


def _encoder(field: FieldDescriptor) -> Encode:
    if field.message_type and field.message_type.GetOptions().map_entry:
        one = _scalar(field.message_type.fields_by_name["value"])
        return lambda entries: {key: one(entries[key]) for key in sorted(entries)}
    if field.is_repeated:
        each = _scalar(field)
        return lambda items: [each(item) for item in items]
    if field.name in JSON_TEXT:
        return lambda text: json.loads(text) if text else None
    if field.type == FieldDescriptor.TYPE_STRING:
        return lambda text: text or None
    return _scalar(field)


def _scalar(field: FieldDescriptor) -> Encode:
    if field.message_type:
        return _SPECIAL.get(field.message_type.full_name, _fields)
    if field.enum_type:
        return enum_names(field.enum_type).get
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return lambda number: number if math.isfinite(number) else None
    return lambda scalar: scalar
