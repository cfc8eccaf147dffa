"""Stores pipelines: versions of plans by tenant and name, with holds on the artifacts they refer to."""

import time
from asyncio import Future
from collections.abc import Iterator, Sequence
from typing import Any

from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from services.common.database import Database, InsertInto, Query, Rows, Steps
from services.orchestrator.journal.artifact_digests import digests
from services.orchestrator.journal.artifact_refs import HOLDS, RELEASE_HOLDS
from services.orchestrator.journal.pages import Page, page, paged

_LATEST = "SELECT version, pipeline FROM pipelines WHERE tenant = ? AND name = ? ORDER BY version DESC LIMIT 1"
_VERSIONS = InsertInto(
    "pipelines",
    {"tenant": "text", "name": "text", "version": "bigint", "created": "float8", "pipeline": "bytea"},
)
_NOTHING = "SELECT 1"
_ONE = "SELECT pipeline FROM pipelines WHERE tenant = ? AND name = ? AND version = ? AND pipeline != ?"
_LAST = "SELECT pipeline FROM pipelines WHERE tenant = ? AND name = ? AND pipeline != ? ORDER BY version DESC LIMIT 1"
_STORED = "LENGTH(pipeline) AS size FROM pipelines WHERE tenant = ? AND pipeline != ?"
_NAMES = paged(
    f"SELECT name AS mark, version AS latest, {_STORED} AND name > ? AND version ="  # noqa: S608  # of constants
    " (SELECT MAX(version) FROM pipelines AS other WHERE other.tenant = pipelines.tenant"
    "  AND other.name = pipelines.name AND other.pipeline != ?)",
    "mark",
    "SELECT many, pipeline FROM measured JOIN pipelines ON tenant = ? AND name = mark AND version = latest",
)
_HISTORY = paged(
    f"SELECT version AS mark, {_STORED} AND name = ? AND version < ?",
    "mark DESC",
    "SELECT many, pipeline FROM measured JOIN pipelines ON tenant = ? AND name = ? AND version = mark",
)
_CLEAR = (
    "UPDATE pipelines SET pipeline = ? WHERE tenant = ? AND name = ? AND (version = ? OR ? = 0) AND pipeline != ?"
    " RETURNING version"
)
_DELETED = b""
"""Content of the row of a deleted pipeline."""


class PipelineStore:
    """Pipelines of all tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, tenant: str, pipeline: Pipeline) -> "Future[Pipeline]":
        """Stores a pipeline as the next version of its name; returns it, or the latest version if that is equal."""

        def operation() -> Steps[Pipeline]:
            yield Query(self._database.dialect.lock, (f"pipeline/{tenant}/{pipeline.name}",))
            found = yield Query(_LATEST, (tenant, pipeline.name))
            if found and found[0][1] and _is_equal(before := Pipeline.FromString(found[0][1]), pipeline):
                return before
            saved = _with_version(pipeline, found[0][0] + 1 if found else 1)
            row = (tenant, saved.name, saved.version, time.time(), saved.SerializeToString())
            yield Query(_NOTHING, (), [(_VERSIONS, [row]), *_hold_rows(tenant, saved)])
            return saved

        return self._database.write(operation)

    async def get(self, tenant: str, name: str, version: int) -> Pipeline | None:
        """A version of a pipeline; the latest for 0; None if there is none."""
        if version:
            return _first(await self._database.read(_ONE, tenant, name, version, _DELETED))
        return _first(await self._database.read(_LAST, tenant, name, _DELETED))

    async def latest(self, tenant: str, after: str, limit: int) -> Page[Pipeline]:
        """The latest version of each pipeline, by name, after a name."""
        values = (tenant, _DELETED, after, _DELETED, limit + 1, tenant, limit)
        return page(await self._database.read(_NAMES, *values), _pipeline)

    async def versions(self, tenant: str, name: str, before: int, limit: int) -> Page[Pipeline]:
        """The versions of one pipeline, latest first, before a version."""
        values = (tenant, _DELETED, name, before, limit + 1, tenant, name, limit)
        return page(await self._database.read(_HISTORY, *values), _pipeline)

    def delete(self, tenant: str, name: str, version: int) -> "Future[bool]":
        """Deletes a version, or all for 0; returns whether there was any."""

        def operation() -> Steps[bool]:
            deleted = yield Query(_CLEAR, (_DELETED, tenant, name, version, version, _DELETED))
            for (number,) in deleted:
                yield Query(RELEASE_HOLDS, (tenant, _holder(name, number)))
            return bool(deleted)

        return self._database.write(operation)


def _with_version(pipeline: Pipeline, version: int) -> Pipeline:
    saved = Pipeline()
    saved.CopyFrom(pipeline)
    saved.version = version
    saved.create_time.GetCurrentTime()
    return saved


def _is_equal(stored: Pipeline, new: Pipeline) -> bool:
    """Whether they differ only in their version, time and source run."""
    fields = ("description", "inputs", "outputs", "plan", "policy")
    return all(getattr(stored, field) == getattr(new, field) for field in fields)


def _hold_rows(tenant: str, pipeline: Pipeline) -> Iterator[tuple[InsertInto, list[tuple[str, str, str]]]]:
    holder = _holder(pipeline.name, pipeline.version)
    if rows := [(tenant, holder, sha256) for sha256 in sorted(set(digests(pipeline)))]:
        yield HOLDS, rows


def _holder(name: str, version: int) -> str:
    return f"pipeline/{name}/{version}"


def _first(rows: Rows) -> Pipeline | None:
    return _pipeline(rows[0]) if rows else None


def _pipeline(row: Sequence[Any]) -> Pipeline:
    return Pipeline.FromString(row[0])
