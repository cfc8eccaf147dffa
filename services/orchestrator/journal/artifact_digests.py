"""Which artifacts a message refers to, wherever in it they are."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from protos.hugginggpt.v1.artifact_pb2 import Artifact

Path: TypeAlias = tuple[str, str, bool, bool]
"""A field that may lead to artifacts: its name, the oneof it is in, whether it is repeated, whether it is a map."""


_DIGEST = re.compile(b"\n@[0-9A-Fa-f]{64}")
"""Field 1, 64 bytes long: an artifact's sha256, as it is written."""


def may_refer(written: bytes) -> bool:
    """Whether a message that was written may hold an artifact: one look, where digests() walks through all of it."""
    return bool(_DIGEST.search(written))


def digests(message: Message) -> Iterator[str]:
    """SHA-256 of every artifact in a message, as often as it is there."""
    if isinstance(message, Artifact):
        yield message.sha256
        return
    held: dict[str, str | None] = {}
    for name, oneof, repeated, mapped in _paths(message.DESCRIPTOR):
        if oneof:
            if oneof not in held:
                held[oneof] = message.WhichOneof(oneof)
            if held[oneof] != name:
                continue
        value: Any = getattr(message, name)
        for inner in value.values() if mapped else value if repeated else (value,):
            yield from digests(inner)


@cache
def _paths(descriptor: Descriptor) -> tuple[Path, ...]:
    return tuple(
        (field.name, _oneof(field), field.is_repeated, field.message_type.GetOptions().map_entry)
        for field in descriptor.fields
        if field.message_type and _leads(field.message_type, frozenset())
    )


def _oneof(field: FieldDescriptor) -> str:
    return str(field.containing_oneof.name) if field.containing_oneof else ""


def _leads(descriptor: Descriptor, seen: frozenset[str]) -> bool:
    """Whether a message of this type may hold an artifact."""
    if descriptor is Artifact.DESCRIPTOR:
        return True
    seen |= {descriptor.full_name}
    inner = (field.message_type for field in descriptor.fields if field.message_type)
    return any(_leads(each, seen) for each in inner if each.full_name not in seen)
