"""Files kept under ids of their own until they are deleted or their time is over, whatever runs do with them."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from gateway.auth.audit import Audit
from gateway.runs import Runs
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.call_context import current, use_caller
from services.common.database import Database, Query, Steps
from services.common.errors import NotFound, ServiceError
from services.common.supervision import supervise

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 600.0
"""How long after its time a file may still take up room; nobody sees it any more."""

_COLUMNS = "id, artifact, purpose, created, expires"
_ALIVE = "(expires IS NULL OR expires > ?)"
_ADD = "INSERT INTO files (id, tenant, artifact, purpose, created, expires) VALUES (?, ?, ?, ?, ?, ?)"
_GET = f"SELECT {_COLUMNS} FROM files WHERE tenant = ? AND id = ? AND {_ALIVE}"  # noqa: S608  # constants
_DELETE = "DELETE FROM files WHERE tenant = ? AND id = ?"
_OVER = "SELECT tenant, id FROM files WHERE expires <= ? LIMIT 500"


@dataclass(frozen=True)
class KeptFile:
    """A file with its id."""

    id: str
    artifact: Artifact
    purpose: str
    created: float
    """Seconds since the epoch."""
    expires: float | None = None


@dataclass(frozen=True)
class Wanted:
    """Which files to list."""

    limit: int
    after: str = ""
    """The id of the last one already seen."""
    purpose: str = ""
    newest_first: bool = True


class Files:
    """The files of the current caller's tenant.

    Args:
        database: the gateway's.
        runs: keep the bytes from being collected.
        audit: is told of what is deleted.
    """

    def __init__(self, database: Database, runs: Runs, audit: Audit) -> None:
        self._database = database
        self._runs = runs
        self._audit = audit

    async def add(self, artifact: Artifact, purpose: str, expires_after: float | None = None) -> KeptFile:
        """Keeps an artifact, for so many seconds or until it is deleted.

        Raises:
            Unavailable: it is not kept.
        """
        now = time.time()
        kept = KeptFile(
            f"file_{secrets.token_hex(12)}", artifact, purpose, now, now + expires_after if expires_after else None
        )
        await self._runs.hold(kept.id, [artifact.sha256])
        values = (kept.id, current().tenant, artifact.SerializeToString(), purpose, kept.created, kept.expires)
        await self._write(Query(_ADD, values))
        return kept

    async def get(self, file_id: str) -> KeptFile:
        """A file.

        Raises:
            NotFound: FILE.
        """
        for row in await self._database.read(_GET, current().tenant, file_id, time.time()):
            return _file(row)
        raise NotFound(f"there is no file {file_id}", reason="FILE", remedy="check the id; GET /v1/files lists them")

    async def page(self, wanted: Wanted) -> tuple[list[KeptFile], bool]:
        """Files in the order of their making, and whether more follow.

        Raises:
            NotFound: FILE, there is none of the id after which to go on.
        """
        where, values = ["tenant = ?", _ALIVE], [current().tenant, time.time()]
        if wanted.purpose:
            where.append("purpose = ?")
            values.append(wanted.purpose)
        if wanted.after:
            last = await self.get(wanted.after)
            where.append(f"(created, id) {'<' if wanted.newest_first else '>'} (?, ?)")
            values += [last.created, last.id]
        order = "DESC" if wanted.newest_first else "ASC"
        sql = (
            f"SELECT {_COLUMNS} FROM files WHERE {' AND '.join(where)}"  # noqa: S608  # constants
            f" ORDER BY created {order}, id {order} LIMIT ?"
        )
        rows = await self._database.read(sql, *values, wanted.limit + 1)
        return [_file(row) for row in rows[: wanted.limit]], len(rows) > wanted.limit

    async def delete(self, file_id: str) -> None:
        """Removes a file; its bytes go once nothing else refers to them.

        Raises:
            NotFound: FILE.
        """
        await self.get(file_id)
        await self._audit.record("file.delete", file_id)
        await self._remove(current().tenant, file_id)

    async def sweep(self) -> None:
        """Removes the files of all tenants whose time is over."""
        while over := await self._database.read(_OVER, time.time()):
            for tenant, file_id in over:
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
async def sweeping(files: Files) -> AsyncIterator[None]:
    """Sweeps now and then until the block exits."""

    async def forever() -> None:
        while True:
            try:
                await files.sweep()
            except ServiceError as error:
                log.warning("files whose time is over are removed later", error=error.message)
            await asyncio.sleep(SWEEP_SECONDS)

    task = asyncio.create_task(supervise(forever, name="expired files"), name="files")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _file(row: Sequence[object]) -> KeptFile:
    file_id, artifact, purpose, created, expires = row
    return KeptFile(file_id, Artifact.FromString(artifact), purpose, created, expires)  # type: ignore[arg-type]  # as the table has them
