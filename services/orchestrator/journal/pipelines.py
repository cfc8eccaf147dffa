"""Stores pipelines: versions of plans by tenant and name, with holds on the artifacts they refer to."""

import time
from asyncio import Future
from collections.abc import Sequence
from typing import Any

from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from services.common.database import Database, InsertInto, Query, Rows, Steps
from services.orchestrator.journal.artifacts import RELEASE_HOLDS, hold_rows
from services.orchestrator.journal.store import NOTHING, Page, paged, to_page

_LATEST = "SELECT version, pipeline FROM pipelines WHERE tenant = ? AND name = ? ORDER BY version DESC LIMIT 1"
_VERSIONS = InsertInto(
    "pipelines",
    {"tenant": "text", "name": "text", "version": "bigint", "created": "float8", "pipeline": "bytea"},
)
_ONE = "SELECT pipeline FROM pipelines WHERE tenant = ? AND name = ? AND version = ? AND pipeline != ?"
_LAST = "SELECT pipeline FROM pipelines WHERE tenant = ? AND name = ? AND pipeline != ? ORDER BY version DESC LIMIT 1"
_STORED = "LENGTH(pipeline) AS size FROM pipelines WHERE tenant = ? AND pipeline != ?"
_NAMES = paged(
    f"SELECT name AS row_key, version AS latest, {_STORED} AND name > ? AND version ="  # noqa: S608  # of constants
    " (SELECT MAX(version) FROM pipelines AS other WHERE other.tenant = pipelines.tenant"
    "  AND other.name = pipelines.name AND other.pipeline != ?)",
    "row_key",
    "SELECT found_rows, pipeline FROM measured JOIN pipelines ON tenant = ? AND name = row_key AND version = latest",
)
_HISTORY = paged(
    f"SELECT version AS row_key, {_STORED} AND name = ? AND version < ?",
    "row_key DESC",
    "SELECT found_rows, pipeline FROM measured JOIN pipelines ON tenant = ? AND name = ? AND version = row_key",
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
            holds = hold_rows(tenant, _holder(saved.name, saved.version), [saved])
            yield Query(NOTHING, (), [(_VERSIONS, [row]), *holds])
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
        return to_page(await self._database.read(_NAMES, *values), _pipeline)

    async def versions(self, tenant: str, name: str, before: int, limit: int) -> Page[Pipeline]:
        """The versions of one pipeline, latest first, before a version."""
        values = (tenant, _DELETED, name, before, limit + 1, tenant, name, limit)
        return to_page(await self._database.read(_HISTORY, *values), _pipeline)

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


def _holder(name: str, version: int) -> str:
    return f"pipeline/{name}/{version}"


def _first(rows: Rows) -> Pipeline | None:
    return _pipeline(rows[0]) if rows else None


def _pipeline(row: Sequence[Any]) -> Pipeline:
    return Pipeline.FromString(row[0])
