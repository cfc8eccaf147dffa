"""Removing batches: at once from sight, then a part at a time."""

# ruff: noqa: S608  # SQL is put together from constants; values are always parameters

from typing import TypeVar

from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.database import Database, Query, Steps
from services.orchestrator.journal import batch_statements as sql
from services.orchestrator.journal.artifact_refs import LET_GO
from services.orchestrator.journal.batch_errors import under_way, unknown
from services.orchestrator.journal.batch_statements import HIDDEN
from services.orchestrator.journal.row_readers import only
from services.orchestrator.journal.tables import ENDED

T = TypeVar("T")

UNFINISHED_SECONDS = 24 * 3600.0
"""After which a batch whose items have not all come never runs."""

_CHUNK = 500
"""Rows of one transaction: others wait for it."""

_TO_HIDDEN = f"UPDATE batches SET state = {HIDDEN}, idempotency_key = '', fence = fence + 1"
_HIDE = f"{_TO_HIDDEN} WHERE id = ?"
_HIDE_UNSTARTED = f"{_TO_HIDDEN} WHERE id = ? AND state = 0 RETURNING id"
_HIDE_OLD = f"{_TO_HIDDEN} WHERE (state >= {RUN_STATE_COMPLETED} AND ended < ?) OR (state = 0 AND created < ?)"
_HIDDEN = f"SELECT id, tenant FROM batches WHERE state = {HIDDEN}"
_OF_BATCH = "batch_id = ? AND batch_id != ''"
"""The second half lets SQLite use the index of such runs."""
_MEMOS = (
    "DELETE FROM memos WHERE (tenant, digest) IN (SELECT memos.tenant, memos.digest FROM runs"
    f" JOIN memos ON memos.run_id = runs.id WHERE runs.{_OF_BATCH} LIMIT ?) RETURNING digest"
)
_RUNS = f"DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE {_OF_BATCH} LIMIT ?) RETURNING id"
_OUTCOMES = (
    "DELETE FROM batch_runs WHERE (batch_id, idx) IN"
    " (SELECT batch_id, idx FROM batch_runs WHERE batch_id = ? LIMIT ?) RETURNING idx"
)
_ITEMS = _OUTCOMES.replace("batch_runs", "batch_items")
_BATCH = "DELETE FROM batches WHERE id = ?"


class BatchRemoval:
    """Removes batches with their items, their items' runs, and the results that these gave others to reuse."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete(self, batch_id: str, tenant: str) -> None:
        """Removes an ended batch.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended.
        """

        def operation() -> Steps[None]:
            found = yield Query(sql.STATE, (batch_id, tenant))
            if not found:
                raise unknown(batch_id)
            if found[0][0] not in ENDED:
                raise under_way(batch_id)
            yield Query(_HIDE, (batch_id,))

        await self._database.write(operation)
        await self._discard(batch_id, tenant)

    async def abandon(self, batch_id: str, tenant: str) -> None:
        """Removes a batch that does not run yet, and then never will; nothing happens to one that does."""
        if await self._database.write(only(Query(_HIDE_UNSTARTED, (batch_id,), alone=True), bool)):
            await self._discard(batch_id, tenant)

    async def _discard(self, batch_id: str, tenant: str) -> None:
        """Removes a batch that is out of sight."""
        for part in (_MEMOS, _RUNS, _OUTCOMES, _ITEMS):
            while len(await self._database.write(only(Query(part, (batch_id, _CHUNK), alone=True), list))) == _CHUNK:
                pass

        def operation() -> Steps[None]:
            yield Query(LET_GO, (tenant, batch_id))
            yield Query(_BATCH, (batch_id,))

        await self._database.write(operation)

    async def thin(self, ended_before: float, begun_before: float) -> None:
        """Removes what ended long ago, what never became a batch, and what was left of removals that broke off."""
        await self._database.write(only(Query(_HIDE_OLD, (ended_before, begun_before), alone=True), lambda _: None))
        for batch_id, tenant in await self._database.read(_HIDDEN):
            await self._discard(batch_id, tenant)
