"""Random protobuf messages with unusual contents, and mutated encodings."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

DEEPEST = 5

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


def message(kind: type[Message], random: Random) -> Message:
    """A message of the given type with random fields set."""
    made = kind()
    _fill(made, random, 0)
    return made


def mutated(content: bytes, random: Random) -> bytes:
    """Encoded message with some bytes changed, removed, repeated or added."""
    kept = bytearray(content or b"\x0a")
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(kept) + 1)
        match random.randrange(4):
            case 0 if place < len(kept):
                kept[place] ^= 1 << random.randrange(8)
            case 1:
                kept[place:place] = random.randbytes(random.randint(1, 8))
            case 2:
                del kept[place : place + random.randint(1, 8)]
            case _:
                kept += kept[place : place + 64]
    return bytes(kept)


def _fill(made: Any, random: Random, depth: int) -> None:
    for field in made.DESCRIPTOR.fields:
        if random.random() < (0.5 if depth else 0.8):
            _set(made, field, random, depth)


def _set(made: Any, field: FieldDescriptor, random: Random, depth: int) -> None:
    if field.message_type and field.message_type.GetOptions().map_entry:
        _set_map(getattr(made, field.name), field.message_type.fields_by_name["value"], random, depth)
    elif field.is_repeated:
        for _ in range(random.randint(0, 3)):
            if not field.message_type:
                getattr(made, field.name).append(_scalar(field, random))
            elif depth < DEEPEST:
                _fill(getattr(made, field.name).add(), random, depth + 1)
    elif not field.message_type:
        setattr(made, field.name, _scalar(field, random))
    elif depth < DEEPEST:
        getattr(made, field.name).SetInParent()
        _fill(getattr(made, field.name), random, depth + 1)


def _set_map(entries: Any, value: FieldDescriptor, random: Random, depth: int) -> None:
    for _ in range(random.randint(0, 2)):
        key = random.choice(_TEXTS)
        if not value.message_type:
            entries[key] = _scalar(value, random)
        elif depth < DEEPEST:
            _fill(entries[key], random, depth + 1)


def _scalar(field: FieldDescriptor, random: Random) -> Any:
    if field.enum_type:
        return random.choice([*field.enum_type.values_by_number, 99])
    if field.type == FieldDescriptor.TYPE_BYTES and random.random() < 0.5:
        return random.randbytes(50)
    return random.choice(_SCALARS.get(field.type, _NUMBERS))
