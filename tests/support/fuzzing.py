"""Random protobuf messages with unusual contents, and mutated encodings."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

MAX_DEPTH = 5

_TEXTS: Sequence[str] = (
    *("", "a", "0", "-1", "null", "../../etc/passwd", "run_1", "file_1", "\0", "\u202e", "💥", "<script>", "{}", "[]"),
    *('{"a":1}', '{"a":NaN}', "e" * 64, "E" * 64, "1e999", "x" * 3_000, " ", "file1", "image-to-text", "text", "%s"),
)
_NUMBERS = (0, 1, 2, -1, 7, 1000, 2**31 - 1, -(2**31))
_SCALARS: Mapping[int, Sequence[Any]] = {
    FieldDescriptor.TYPE_STRING: _TEXTS,
    FieldDescriptor.TYPE_BYTES: (b"", b"x", b"\x89PNG\r\n\x1a\n" + bytes(20)),
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_DOUBLE: (0.0, -1.0, 0.5, 1e308, float("inf"), float("nan")),
    FieldDescriptor.TYPE_INT64: (*_NUMBERS, 2**53, 2**63 - 1, -(2**63)),
    FieldDescriptor.TYPE_UINT64: (0, 1, 2**53, 2**64 - 1),
}


def random_message(kind: type[Message], random: Random) -> Message:
    """A message of the given type with random fields set."""
    message = kind()
    _fill(message, random, 0)
    return message


def mutate(content: bytes, random: Random) -> bytes:
    """Encoded message with some bytes changed, removed, repeated or added."""
    changed = bytearray(content or b"\x0a")
    for _ in range(random.randint(1, 4)):
        position = random.randrange(len(changed) + 1)
        match random.randrange(4):
            case 0 if position < len(changed):
                changed[position] ^= 1 << random.randrange(8)
            case 1:
                changed[position:position] = random.randbytes(random.randint(1, 8))
            case 2:
                del changed[position : position + random.randint(1, 8)]
            case _:
                changed += changed[position : position + 64]
    return bytes(changed)


def _fill(message: Any, random: Random, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if random.random() < (0.5 if depth else 0.8):
            _set(message, field, random, depth)


def _set(message: Any, field: FieldDescriptor, random: Random, depth: int) -> None:
    if field.message_type and field.message_type.GetOptions().map_entry:
        _set_map(getattr(message, field.name), field.message_type.fields_by_name["value"], random, depth)
    elif field.is_repeated:
        for _ in range(random.randint(0, 3)):
            if not field.message_type:
                getattr(message, field.name).append(_scalar(field, random))
            elif depth < MAX_DEPTH:
                _fill(getattr(message, field.name).add(), random, depth + 1)
    elif not field.message_type:
        setattr(message, field.name, _scalar(field, random))
    elif depth < MAX_DEPTH:
        getattr(message, field.name).SetInParent()
        _fill(getattr(message, field.name), random, depth + 1)


def _set_map(entries: Any, value: FieldDescriptor, random: Random, depth: int) -> None:
    for _ in range(random.randint(0, 2)):
        key = random.choice(_TEXTS)
        if not value.message_type:
            entries[key] = _scalar(value, random)
        elif depth < MAX_DEPTH:
            _fill(entries[key], random, depth + 1)


def _scalar(field: FieldDescriptor, random: Random) -> Any:
    if field.enum_type:
        return random.choice([*field.enum_type.values_by_number, 99])
    if field.type == FieldDescriptor.TYPE_BYTES and random.random() < 0.5:
        return random.randbytes(50)
    return random.choice(_SCALARS.get(field.type, _NUMBERS))
