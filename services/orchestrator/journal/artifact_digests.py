"""Finds the artifacts that a message refers to, at any depth."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from protos.hugginggpt.v1.artifact_pb2 import Artifact

Path: TypeAlias = tuple[str, str, bool, bool]
"""A field that may lead to artifacts: its name, its oneof, whether it is repeated, whether it is a map."""


_DIGEST = re.compile(b"\n@[0-9A-Fa-f]{64}")
"""Field 1 with 64 bytes: the encoded sha256 of an artifact."""


def may_refer(encoded: bytes) -> bool:
    """Whether an encoded message may refer to an artifact: a fast check, where digests() walks the whole message."""
    return bool(_DIGEST.search(encoded))


def digests(message: Message) -> Iterator[str]:
    """SHA-256 of every artifact in a message, with repetitions."""
    if isinstance(message, Artifact):
        yield message.sha256
        return
    set_fields: dict[str, str | None] = {}
    for name, oneof, repeated, mapped in _paths(message.DESCRIPTOR):
        if oneof:
            if oneof not in set_fields:
                set_fields[oneof] = message.WhichOneof(oneof)
            if set_fields[oneof] != name:
                continue
        value: Any = getattr(message, name)
        for inner in value.values() if mapped else value if repeated else (value,):
            yield from digests(inner)


@cache
def _paths(descriptor: Descriptor) -> tuple[Path, ...]:
    return tuple(
        (field.name, _oneof(field), field.is_repeated, field.message_type.GetOptions().map_entry)
        for field in descriptor.fields
        if field.message_type and _may_contain(field.message_type, frozenset())
    )


def _oneof(field: FieldDescriptor) -> str:
    return str(field.containing_oneof.name) if field.containing_oneof else ""


def _may_contain(descriptor: Descriptor, seen: frozenset[str]) -> bool:
    """Whether a message of this type may contain an artifact."""
    if descriptor is Artifact.DESCRIPTOR:
        return True
    seen |= {descriptor.full_name}
    inner = (field.message_type for field in descriptor.fields if field.message_type)
    return any(_may_contain(each, seen) for each in inner if each.full_name not in seen)
