"""JSON decoding of requests to protobuf messages: the inverse of the encoder.

Accepts aliases of field names; rejects unknown fields, numbers out of range and values of the wrong type, naming the
field.
"""

from collections.abc import Callable, Mapping, Sized
from contextvars import ContextVar
from functools import cache
from typing import Any, NoReturn, TypeVar

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.json_encoder import ARGUMENT_FORMS, JSON_TEXT, enum_names
from gateway.json_text import canonical, checked_text, refuse
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import TaskStatus
from protos.hugginggpt.v1.task_pb2 import Argument, ArgumentList, InputRef, Reference, Task

M = TypeVar("M", bound=Message)

MAX_SECONDS = 366 * 24 * 3600
"""Longest accepted duration, in seconds."""

MAX_ENTRIES = 50_000
"""Maximum number of fields and entries of one message; decoding blocks the event loop."""

_ALIASES: Mapping[str, Mapping[str, str]] = {
    Task.DESCRIPTOR.full_name: {"args": "arguments", "model": "pinned_model", "revision": "pinned_revision"},
}
"""Field names used in printed plans."""

_IGNORED: Mapping[str, frozenset[str]] = {Task.DESCRIPTOR.full_name: frozenset({"depends_on"})}
"""Derived fields of printed plans, ignored here."""

_REMEDIES: Mapping[str, str] = {
    "files": "send files as multipart/form-data: the request in the field request or spec, each file in a field file",
}

_RANGES: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**53 - 1),
}


def decode(kind: type[M], content: Any, where: str = "") -> M:
    """Decodes a message.

    Raises:
        InvalidRequest: the error names the field and what it accepts; TOO_LARGE, too many entries.
    """
    token = _entries.set(0)
    try:
        return _decode_message(kind, content, where)
    finally:
        _entries.reset(token)


_entries: ContextVar[int] = ContextVar("entries", default=0)


def _decode_message(kind: type[M], content: Any, where: str) -> M:
    descriptor: Any = kind.DESCRIPTOR  # typed differently by two stub packages
    message: M = _reader(descriptor)(content, where)
    return message


def _count(entries: Sized) -> None:
    _entries.set(_entries.get() + len(entries))
    if _entries.get() > MAX_ENTRIES:
        refuse(
            "",
            f"has more than {MAX_ENTRIES} fields and entries",
            reason="TOO_LARGE",
            remedy="send less data, or send it as files",
        )


def _read_value(content: Any, where: str) -> Value:
    if isinstance(content, str):
        return Value(text=checked_text(content, where))
    if isinstance(content, dict) and content.keys() == {"artifact"}:
        return Value(artifact=_decode_message(Artifact, content["artifact"], f"{where}.artifact"))
    if isinstance(content, dict) and content.keys() == {"json"}:
        return Value(json=canonical(content["json"], where))
    return Value(json=canonical(content, where))


def _read_argument(content: Any, where: str) -> Argument:
    match content:
        case list():
            _count(content)
            if any(isinstance(item, list) for item in content):
                refuse(where, "is a list of lists", remedy='write JSON that is a list as {"json": […]}')
            items = [_read_argument(item, f"{where}[{index}]") for index, item in enumerate(content)]
            return Argument(list=ArgumentList(items=items))
        case {"task_id": _}:
            return Argument(reference=_decode_message(Reference, content, where))
        case {"input": name} if len(content) == 1:
            return Argument(input=InputRef(name=checked_text(name, f"{where}.input")))
    return Argument(value=_read_value(content, where))


def _read_named_value(content: Any, where: str) -> NamedValue:
    entry = _object(content, where)
    given = entry.keys() & {"text", "json", "artifact"}
    if unknown := entry.keys() - given - {"name"}:
        _unknown(where, min(unknown), ("name", "text", "json", "artifact"))
    if len(given) != 1:
        refuse(
            where,
            "needs exactly one of text, json and artifact",
            remedy='send an object such as {"name": "a", "text": "…"}',
        )
    key = given.pop()
    place = f"{where}.{key}"
    named = NamedValue(name=checked_text(entry.get("name") or "", f"{where}.name"))
    match key:
        case "text":
            named.value.text = checked_text(entry[key], place)
        case "json":
            named.value.json = canonical(entry[key], place)
        case "artifact":
            named.value.artifact.CopyFrom(_decode_message(Artifact, entry[key], place))
    return named


_TASK_STATUS_FIELDS = frozenset(field.name for field in TaskStatus.DESCRIPTOR.fields)
"""Fields of a task in a run; a task of a displayed run is accepted as sent."""


def _read_task(content: Any, where: str) -> Any:
    """Decodes a task; a list for a standard port that takes one value is JSON and needs no wrapping."""
    if isinstance(content, dict) and isinstance(content.get("task"), dict) and content.keys() <= _TASK_STATUS_FIELDS:
        content, where = content["task"], f"{where}.task"
    named = content.get("task") if isinstance(content, dict) else None
    spec = standard_tasks().get(named) if isinstance(named, str) else None
    for key in ("args", "arguments"):
        if spec and isinstance(content.get(key), dict):
            single = {port.name for port in spec.inputs if not port.many}
            given = {
                name: {"json": argument} if name in single and _is_plain_list(argument) else argument
                for name, argument in content[key].items()
            }
            content = {**content, key: given}
    return _fields(Task.DESCRIPTOR, content, where)


def _is_plain_list(argument: Any) -> bool:
    if not isinstance(argument, list):
        return False
    return not any(isinstance(item, dict) and not ARGUMENT_FORMS.isdisjoint(item) for item in argument)


def _read_plan(content: Any, where: str) -> Plan:
    return Plan(
        tasks=[_decode_message(Task, item, f"{where}[{index}]") for index, item in enumerate(_list(content, where))]
    )


def _read_duration(content: Any, where: str) -> Duration:
    seconds = _number(content, where)
    if not 0 <= seconds <= MAX_SECONDS:
        refuse(where, "is out of range", remedy=f"send seconds from 0 to {MAX_SECONDS}")
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def _read_timestamp(content: Any, where: str) -> Timestamp:
    timestamp = Timestamp()
    try:
        timestamp.FromJsonString(checked_text(content, where))
    except ValueError:
        refuse(where, "is not a timestamp", remedy="use RFC 3339, such as 2030-01-31T12:00:00Z")
    return timestamp


_SPECIAL: Mapping[str, Callable[[Any, str], Any]] = {
    Task.DESCRIPTOR.full_name: _read_task,
    Value.DESCRIPTOR.full_name: _read_value,
    Argument.DESCRIPTOR.full_name: _read_argument,
    NamedValue.DESCRIPTOR.full_name: _read_named_value,
    Plan.DESCRIPTOR.full_name: _read_plan,
    Timestamp.DESCRIPTOR.full_name: _read_timestamp,
    Duration.DESCRIPTOR.full_name: _read_duration,
}


def _reader(descriptor: Descriptor) -> Callable[[Any, str], Any]:
    return _SPECIAL.get(descriptor.full_name) or (lambda content, where: _fields(descriptor, content, where))


def _fields(descriptor: Descriptor, content: Any, where: str) -> Any:
    known, result = _names(descriptor), {}
    for key, item in _object(content, where).items():
        place = f"{where}.{key}" if where else key
        if key in _IGNORED.get(descriptor.full_name, ()):
            continue
        if key not in known:
            _unknown(where, key, tuple(known))
        if item is not None:
            result[known[key].name] = _field(known[key], item, place)
    return GetMessageClass(descriptor)(**result)


@cache
def _names(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    names = {JSON_TEXT.get(field.name, field.name): field for field in descriptor.fields}
    by_name = {field.name: field for field in descriptor.fields}
    aliases = _ALIASES.get(descriptor.full_name, {})
    return names | by_name | {alias: by_name[name] for alias, name in aliases.items()}


def _field(field: FieldDescriptor, content: Any, where: str) -> Any:
    if field.message_type and field.message_type.GetOptions().map_entry:
        one, entries = field.message_type.fields_by_name["value"], _object(content, where)
        return {checked_text(key, where): _scalar(one, item, f"{where}.{key}") for key, item in entries.items()}
    if field.is_repeated:
        return [_scalar(field, item, f"{where}[{index}]") for index, item in enumerate(_list(content, where))]
    return _scalar(field, content, where)


def _scalar(field: FieldDescriptor, content: Any, where: str) -> Any:
    if field.message_type:
        return _reader(field.message_type)(content, where)
    if field.enum_type:
        return _enum(field.enum_type, content, where)
    if field.name in JSON_TEXT:
        return canonical(_object(content, where), where)
    if field.type in _RANGES:
        return _integer(content, where, *_RANGES[field.type])
    return _PLAIN[field.type](content, where)


def _enum(enum: EnumDescriptor, content: Any, where: str) -> int:
    names = enum_names(enum)
    numbers = {name.lower(): number for number, name in names.items()}
    if not isinstance(content, str) or content.lower() not in numbers:
        refuse(where, "has an unknown value", remedy=f"use one of {', '.join(names.values())}")
    return numbers[content.lower()]


def _number(content: Any, where: str) -> float:
    if isinstance(content, bool) or not isinstance(content, int | float):
        refuse(where, "is not a number", remedy="send a number")
    try:
        return float(content)
    except OverflowError:
        refuse(where, "is out of range", remedy="send a smaller number")


def _integer(content: Any, where: str, low: int, high: int) -> int:
    if isinstance(content, bool) or not isinstance(content, int):
        refuse(where, "is not a whole number", remedy="send a whole number")
    if not low <= content <= high:
        refuse(where, "is out of range", remedy=f"send a number from {low} to {high}")
    return content


def _boolean(content: Any, where: str) -> bool:
    return content if isinstance(content, bool) else refuse(where, "is not true or false", remedy="send true or false")


_PLAIN: Mapping[int, Callable[[Any, str], Any]] = {
    FieldDescriptor.TYPE_STRING: checked_text,
    FieldDescriptor.TYPE_BOOL: _boolean,
    FieldDescriptor.TYPE_DOUBLE: _number,
}


def _object(content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        refuse(where, "is not a JSON object", remedy="send an object")
    _count(content)
    return content


def _list(content: Any, where: str) -> list[Any]:
    if not isinstance(content, list):
        refuse(where, "is not a list", remedy="send a list")
    _count(content)
    return content


def _unknown(where: str, key: str, known: tuple[str, ...]) -> NoReturn:
    remedy = _REMEDIES.get(key, f"use one of {', '.join(known)}")
    refuse(where, f"has an unknown field {key[:100]!r}", reason="UNKNOWN_FIELD", remedy=remedy)
