"""Table of OpenAI batches and of the outcomes of their requests."""

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.call_context import current
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import NotFound

OPENAI_BATCHES = """
    CREATE TABLE openai_batches (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        caller BLOB NOT NULL,
        endpoint TEXT NOT NULL,
        input_file_id TEXT NOT NULL,
        input BLOB NOT NULL,
        metadata TEXT NOT NULL,
        site TEXT NOT NULL,
        state TEXT NOT NULL,
        total INTEGER NOT NULL,
        output_file_id TEXT NOT NULL,
        error_file_id TEXT NOT NULL,
        errors TEXT NOT NULL,
        created REAL NOT NULL,
        started REAL,
        cancelled REAL,
        ended REAL,
        leased REAL NOT NULL
    );
    CREATE INDEX openai_batches_by_tenant ON openai_batches (tenant, created, id);
    CREATE INDEX openai_batches_active ON openai_batches (leased) WHERE ended IS NULL;
    CREATE TABLE openai_batch_requests (
        batch_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        line TEXT NOT NULL,
        PRIMARY KEY (batch_id, number)
    )
"""
"""A batch is carried out by the gateway whose lease has not expired; each request's outcome is stored as it ends."""

LEASE_SECONDS = 30.0
"""Seconds after which another gateway continues a batch whose gateway has stopped."""

_PAGE = 200


@dataclass(frozen=True)
class Batch:
    """A stored batch."""

    id: str
    tenant: str
    caller: bytes
    endpoint: str
    input_file_id: str
    input: bytes
    metadata: str
    site: str
    """Scheme and host of the gateway as the client sent them, for artifact URLs."""
    state: str
    """Status in OpenAI's API."""
    total: int
    output_file_id: str
    error_file_id: str
    errors: str
    """JSON list of the errors of the input file."""
    created: float
    started: float | None = None
    cancelled: float | None = None
    ended: float | None = None

    @property
    def artifact(self) -> Artifact:
        """The input file."""
        return Artifact.FromString(self.input)


@dataclass(frozen=True)
class Counts:
    """Requests of a batch that have ended."""

    completed: int = 0
    failed: int = 0


_COLUMNS = ", ".join(field.name for field in fields(Batch))
_INSERT = f"INSERT INTO openai_batches ({_COLUMNS}, leased) VALUES ({', '.join('?' * 18)})"  # noqa: S608  # constants
_SELECT = f"SELECT {_COLUMNS} FROM openai_batches"  # noqa: S608  # constants


class BatchStore:
    """Batches of all tenants.

    Args:
        database: the gateway's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        now, skip = database.dialect.now, database.dialect.skip_locked
        self._claim = (
            f"WITH found AS MATERIALIZED (SELECT id FROM openai_batches WHERE ended IS NULL AND leased < {now}"  # noqa: S608
            f" ORDER BY leased LIMIT 1{skip}) UPDATE openai_batches SET leased = {now} + ?"
            f" WHERE id IN (SELECT id FROM found) RETURNING {_COLUMNS}"
        )
        self._renew = f"UPDATE openai_batches SET leased = {now} + ? WHERE id = ? RETURNING state"  # noqa: S608

    async def add(self, endpoint: str, file_id: str, artifact: Artifact, details: Mapping[str, str]) -> Batch:
        """Stores a batch of the current caller.

        Args:
            endpoint: path to which its requests are sent.
            file_id: id of its input file.
            artifact: content of that file.
            details: its `metadata` as JSON, and the `site` of the gateway.
        """
        (now,) = (await self._database.read(f"SELECT {self._database.dialect.now}"))[0]  # constant
        batch = Batch(
            id=new_id(),
            tenant=current().tenant,
            caller=current().SerializeToString(),
            endpoint=endpoint,
            input_file_id=file_id,
            input=artifact.SerializeToString(),
            metadata=details["metadata"],
            site=details["site"],
            state="validating",
            total=0,
            output_file_id="",
            error_file_id="",
            errors="[]",
            created=float(now),
        )
        values = tuple(getattr(batch, field.name) for field in fields(Batch))
        await self._write(Query(_INSERT, (*values, 0.0)))
        return batch

    async def get(self, batch_id: str) -> Batch:
        """Returns a batch of the current caller's tenant.

        Raises:
            NotFound: BATCH.
        """
        for row in await self._database.read(f"{_SELECT} WHERE tenant = ? AND id = ?", current().tenant, batch_id):
            return Batch(*row)
        raise NotFound(f"there is no batch {batch_id[:100]}", reason="BATCH", remedy="GET /v1/batches lists them")

    async def page(self, limit: int, after: str) -> tuple[list[Batch], bool]:
        """Returns a page of the tenant's batches, newest first, and whether more follow."""
        where, values = "tenant = ?", [current().tenant]
        if after:
            last = await self.get(after)
            where, values = f"{where} AND (created, id) < (?, ?)", [*values, last.created, last.id]  # type: ignore[list-item]  # mixed
        sql = f"{_SELECT} WHERE {where} ORDER BY created DESC, id DESC LIMIT ?"
        rows = await self._database.read(sql, *values, limit + 1)
        return [Batch(*row) for row in rows[:limit]], len(rows) > limit

    async def counts(self, batch_id: str) -> Counts:
        sql = "SELECT failed, count(*) FROM openai_batch_requests WHERE batch_id = ? GROUP BY failed"
        found: dict[int, int] = {int(row[0]): int(row[1]) for row in await self._database.read(sql, batch_id)}
        return Counts(found.get(0, 0), found.get(1, 0))

    async def age(self, batch: Batch) -> float:
        """Seconds since a batch was created, by the database's clock."""
        rows = await self._database.read(f"SELECT {self._database.dialect.now}")  # constant
        return float(rows[0][0]) - batch.created

    async def claim(self) -> Batch | None:
        """Leases a batch that no gateway carries out."""

        def operation() -> Steps[Batch | None]:
            rows: Rows = yield Query(self._claim, (LEASE_SECONDS,))
            return Batch(*rows[0]) if rows else None

        return await self._database.write(operation)

    async def renew(self, batch_id: str) -> str:
        """Renews the lease; returns the state of the batch."""

        def operation() -> Steps[str]:
            rows: Rows = yield Query(self._renew, (LEASE_SECONDS, batch_id))
            return str(rows[0][0]) if rows else ""

        return await self._database.write(operation)

    async def update(self, batch_id: str, **values: object) -> None:
        """Changes columns of a batch that has not ended; the value True of a time means now."""
        now = self._database.dialect.now
        assignments = ", ".join(f"{name} = {now if value is True else '?'}" for name, value in values.items())
        sql = f"UPDATE openai_batches SET {assignments} WHERE id = ? AND ended IS NULL"  # noqa: S608  # own columns
        await self._write(Query(sql, (*(value for value in values.values() if value is not True), batch_id)))

    async def record(self, batch_id: str, number: int, line: Mapping[str, Any], *, failed: bool) -> None:
        """Stores the outcome of a request."""
        sql = (
            "INSERT INTO openai_batch_requests (batch_id, number, failed, line) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (batch_id, number) DO NOTHING"
        )
        await self._write(Query(sql, (batch_id, number, int(failed), json.dumps(line, ensure_ascii=False))))

    async def recorded(self, batch_id: str) -> set[int]:
        """Numbers of the requests that have ended."""
        rows = await self._database.read("SELECT number FROM openai_batch_requests WHERE batch_id = ?", batch_id)
        return {number for (number,) in rows}

    async def lines(self, batch_id: str, *, failed: bool) -> AsyncIterator[bytes]:
        """The outcomes of the requests in the order of the input, one JSON line each."""
        sql = (
            "SELECT number, line FROM openai_batch_requests WHERE batch_id = ? AND failed = ? AND number > ?"
            " ORDER BY number LIMIT ?"
        )
        last = -1
        while rows := await self._database.read(sql, batch_id, int(failed), last, _PAGE):
            for last, line in rows:  # noqa: B007  # used by the next page
                yield f"{line}\n".encode()

    async def _write(self, query: Query) -> None:
        def operation() -> Steps[None]:
            yield query

        await self._database.write(operation)


def new_id() -> str:
    """Returns the id of a new batch."""
    return f"batch_{secrets.token_hex(12)}"


def caller_of(batch: Batch) -> Caller:
    """The caller that created a batch."""
    return Caller.FromString(batch.caller)


def batch_errors(batch: Batch) -> Sequence[Mapping[str, Any]]:
    errors: Sequence[Mapping[str, Any]] = json.loads(batch.errors)
    return errors
