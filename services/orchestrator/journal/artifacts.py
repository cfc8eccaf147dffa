"""Artifacts that messages refer to, and references to them: by runs, stored results, and holders such as files.

Retention deletes no artifact that is referred to.
"""

import re
from asyncio import Future
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.database import Database, InsertInto, Query, Steps
from services.orchestrator.journal.store import NOTHING, Inserts

_RUN_ARTIFACTS = InsertInto("run_artifacts", {"run_id": "text", "sha256": "text"}, "ON CONFLICT DO NOTHING")
_MEMO_ARTIFACTS = InsertInto(
    "memo_artifacts", {"tenant": "text", "digest": "text", "sha256": "text"}, "ON CONFLICT DO NOTHING"
)
_HELD_ARTIFACTS = InsertInto(
    "held_artifacts", {"tenant": "text", "holder": "text", "sha256": "text"}, "ON CONFLICT DO NOTHING"
)
RELEASE_HOLDS = "DELETE FROM held_artifacts WHERE tenant = ? AND holder = ?"
REFERENCED_ARTIFACTS = (
    "SELECT sha256 FROM run_artifacts JOIN runs ON runs.id = run_id WHERE tenant = ? AND sha256 {among}"
    " UNION SELECT sha256 FROM memo_artifacts WHERE tenant = ? AND sha256 {among}"
    " UNION SELECT sha256 FROM held_artifacts WHERE tenant = ? AND sha256 {among}"
)


class ArtifactHolds:
    """References to artifacts by holders outside the journal, such as the gateway's files."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def hold(self, tenant: str, holder: str, sha256s: Collection[str]) -> "Future[None]":
        """Replaces the artifacts that a holder refers to."""
        rows = [(tenant, holder, sha256) for sha256 in sorted(set(sha256s))]

        def operation() -> Steps[None]:
            yield Query(RELEASE_HOLDS, (tenant, holder))
            if rows:
                yield Query(NOTHING, (), [(_HELD_ARTIFACTS, rows)])

        return self._database.write(operation)


def run_artifact_rows(run_id: str, digests: Collection[str]) -> Inserts:
    """Rows of the artifacts that a run refers to; none without digests."""
    rows = [(run_id, sha256) for sha256 in sorted(set(digests))]
    return [(_RUN_ARTIFACTS, rows)] if rows else []


def memo_artifact_rows(references: Collection[tuple[str, str, str]]) -> Inserts:
    """Rows of the artifacts that stored results refer to, as (tenant, digest of the call, SHA-256)."""
    return [(_MEMO_ARTIFACTS, sorted(references))] if references else []


def hold_rows(tenant: str, holder: str, messages: Collection[Message]) -> Inserts:
    """Rows that add the artifacts of messages to those that a holder refers to."""
    rows = [(tenant, holder, sha256) for sha256 in sorted({each for message in messages for each in digests(message)})]
    return [(_HELD_ARTIFACTS, rows)] if rows else []


_DIGEST = re.compile(b"\n@[0-9A-Fa-f]{64}")
"""Field 1 with 64 bytes: the encoded sha256 of an artifact."""


def may_refer(encoded: bytes) -> bool:
    """Whether an encoded message may refer to an artifact: a fast check, where digests() walks the whole message."""
    return bool(_DIGEST.search(encoded))


def digests(message: Message) -> Iterator[str]:
    """SHA-256 of every artifact in a message, at any depth, with repetitions."""
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


_Path: TypeAlias = tuple[str, str, bool, bool]
"""A field that may lead to artifacts: its name, its oneof, whether it is repeated, whether it is a map."""


@cache
def _paths(descriptor: Descriptor) -> tuple[_Path, ...]:
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
