"""Files that clients store for later requests: their table, operations, and the deletion of expired ones."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from gateway.auth.audit import Audit
from gateway.core.runs import RunOperations
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.call_context import current, use_caller
from services.common.database import Database, Query, Steps
from services.common.errors import NotFound, ServiceError
from services.common.supervision import supervise

FILES = """
    CREATE TABLE files (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        artifact BLOB NOT NULL,
        purpose TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL
    );
    CREATE INDEX files_by_tenant ON files (tenant, created, id);
    CREATE INDEX files_by_expiry ON files (expires) WHERE expires IS NOT NULL
"""


log = structlog.get_logger(__name__)

CLEANUP_SECONDS = 600.0
"""Seconds between deletions of expired files, which are invisible from their expiry on."""

_COLUMNS = "id, artifact, purpose, created, expires"
_NOT_EXPIRED = "(expires IS NULL OR expires > ?)"
_ADD = "INSERT INTO files (id, tenant, artifact, purpose, created, expires) VALUES (?, ?, ?, ?, ?, ?)"
_GET = f"SELECT {_COLUMNS} FROM files WHERE tenant = ? AND id = ? AND {_NOT_EXPIRED}"  # noqa: S608  # constants
_DELETE = "DELETE FROM files WHERE tenant = ? AND id = ?"
_EXPIRED = "SELECT tenant, id FROM files WHERE expires <= ? LIMIT 500"


@dataclass(frozen=True)
class StoredFile:
    """A stored file."""

    id: str
    artifact: Artifact
    purpose: str
    created: float
    """Unix time in seconds."""
    expires: float | None = None


@dataclass(frozen=True)
class FileQuery:
    """Filter, order and page of a file list."""

    limit: int
    after: str = ""
    """Id of the last file of the previous page."""
    purpose: str = ""
    newest_first: bool = True


class FileService:
    """Stored files of the current caller's tenant.

    Args:
        database: the gateway's database.
        runs: registers the artifacts of files, so that they are not garbage-collected.
        audit: records deletions.
    """

    def __init__(self, database: Database, runs: RunOperations, audit: Audit) -> None:
        self._database = database
        self._runs = runs
        self._audit = audit

    async def add(self, artifact: Artifact, purpose: str, expires_after: float | None = None) -> StoredFile:
        """Stores an artifact as a file, for a number of seconds or until it is deleted.

        Raises:
            Unavailable: the file is not stored.
        """
        now = time.time()
        file = StoredFile(
            f"file_{secrets.token_hex(12)}", artifact, purpose, now, now + expires_after if expires_after else None
        )
        await self._runs.hold(file.id, [artifact.sha256])
        values = (file.id, current().tenant, artifact.SerializeToString(), purpose, file.created, file.expires)
        await self._write(Query(_ADD, values))
        return file

    async def get(self, file_id: str) -> StoredFile:
        """Returns a file.

        Raises:
            NotFound: FILE.
        """
        for row in await self._database.read(_GET, current().tenant, file_id, time.time()):
            return _stored_file(row)
        raise NotFound(
            f"there is no file {file_id}", reason="FILE", remedy="check the id; list the files with GET /v1/files"
        )

    async def page(self, query: FileQuery) -> tuple[list[StoredFile], bool]:
        """Returns a page of files by creation time, and whether more follow.

        Raises:
            NotFound: FILE, the file after which the page starts does not exist.
        """
        where, values = ["tenant = ?", _NOT_EXPIRED], [current().tenant, time.time()]
        if query.purpose:
            where.append("purpose = ?")
            values.append(query.purpose)
        if query.after:
            last = await self.get(query.after)
            where.append(f"(created, id) {'<' if query.newest_first else '>'} (?, ?)")
            values += [last.created, last.id]
        order = "DESC" if query.newest_first else "ASC"
        sql = (
            f"SELECT {_COLUMNS} FROM files WHERE {' AND '.join(where)}"  # noqa: S608  # constants
            f" ORDER BY created {order}, id {order} LIMIT ?"
        )
        rows = await self._database.read(sql, *values, query.limit + 1)
        return [_stored_file(row) for row in rows[: query.limit]], len(rows) > query.limit

    async def delete(self, file_id: str) -> None:
        """Deletes a file; its content is removed once nothing else refers to it.

        Raises:
            NotFound: FILE.
        """
        await self.get(file_id)
        await self._audit.record("file.delete", file_id)
        await self._remove(current().tenant, file_id)

    async def delete_expired(self) -> None:
        """Deletes the expired files of all tenants."""
        while expired := await self._database.read(_EXPIRED, time.time()):
            for tenant, file_id in expired:
                with use_caller(Caller(tenant=tenant)):
                    await self._remove(tenant, file_id)

    async def _remove(self, tenant: str, file_id: str) -> None:
        await self._runs.hold(file_id, [])
        await self._write(Query(_DELETE, (tenant, file_id)))

    async def _write(self, query: Query) -> None:
        def operation() -> Steps[None]:
            yield query

        await self._database.write(operation)


@asynccontextmanager
async def deleting_expired(files: FileService) -> AsyncIterator[None]:
    """Deletes expired files periodically within the block."""

    async def forever() -> None:
        while True:
            try:
                await files.delete_expired()
            except ServiceError as error:
                log.warning("cannot delete expired files; retrying", error=error.message)
            await asyncio.sleep(CLEANUP_SECONDS)

    task = asyncio.create_task(supervise(forever, name="expired files"), name="files")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _stored_file(row: Sequence[object]) -> StoredFile:
    file_id, artifact, purpose, created, expires = row
    return StoredFile(file_id, Artifact.FromString(artifact), purpose, created, expires)  # type: ignore[arg-type]  # as the table has them
