"""Deletes batches: hides them at once, then deletes their rows in small transactions."""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.database import Database, Query, Steps
from services.orchestrator.journal.artifacts import RELEASE_HOLDS
from services.orchestrator.journal.errors import still_running, unknown_batch
from services.orchestrator.journal.queries import single_query

UNFINISHED_SECONDS = 24 * 3600.0
"""A batch whose items did not all arrive within this time is deleted."""

CHUNK_ROWS = 500
"""Rows deleted in one transaction: other writers wait for it."""

_HIDDEN_STATE = -1
"""State of a batch that is being deleted, which callers do not see."""

_STATE = "SELECT state FROM batches WHERE id = ? AND tenant = ? AND state > 0"
_TO_HIDDEN = f"UPDATE batches SET state = {_HIDDEN_STATE}, idempotency_key = '', fence = fence + 1"
_HIDE = f"{_TO_HIDDEN} WHERE id = ?"
_HIDE_UNSTARTED = f"{_TO_HIDDEN} WHERE id = ? AND state = 0 RETURNING id"
_HIDE_OLD = f"{_TO_HIDDEN} WHERE (state >= {RUN_STATE_COMPLETED} AND ended < ?) OR (state = 0 AND created < ?)"
_HIDDEN = f"SELECT id, tenant FROM batches WHERE state = {_HIDDEN_STATE}"
_OF_BATCH = "batch_id = ? AND batch_id != ''"
"""The second condition lets SQLite use the index of batch runs."""
_MEMOS = (
    "DELETE FROM memos WHERE (tenant, digest) IN (SELECT memos.tenant, memos.digest FROM runs"
    f" JOIN memos ON memos.run_id = runs.id WHERE runs.{_OF_BATCH} LIMIT ?) RETURNING digest"
)
_RUNS = f"DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE {_OF_BATCH} LIMIT ?) RETURNING id"
_OUTCOMES = (
    "DELETE FROM batch_runs WHERE (batch_id, item_index) IN"
    " (SELECT batch_id, item_index FROM batch_runs WHERE batch_id = ? LIMIT ?) RETURNING item_index"
)
_ITEMS = _OUTCOMES.replace("batch_runs", "batch_items")
_BATCH = "DELETE FROM batches WHERE id = ?"


class BatchRemoval:
    """Deletes batches with their items, the items' runs, and the results stored for reuse."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete(self, batch_id: str, tenant: str) -> None:
        """Deletes an ended batch.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended.
        """

        def operation() -> Steps[None]:
            found = yield Query(_STATE, (batch_id, tenant))
            if not found:
                raise unknown_batch(batch_id)
            if found[0][0] not in ENDED_RUN_STATES:
                raise still_running(batch_id)
            yield Query(_HIDE, (batch_id,))

        await self._database.write(operation)
        await self._discard(batch_id, tenant)

    async def abandon(self, batch_id: str, tenant: str) -> None:
        """Deletes a batch that has not started; a started batch is left unchanged."""
        if await self._database.write(single_query(Query(_HIDE_UNSTARTED, (batch_id,), alone=True), bool)):
            await self._discard(batch_id, tenant)

    async def _discard(self, batch_id: str, tenant: str) -> None:
        """Deletes the rows of a hidden batch."""
        for part in (_MEMOS, _RUNS, _OUTCOMES, _ITEMS):
            query = Query(part, (batch_id, CHUNK_ROWS), alone=True)
            while len(await self._database.write(single_query(query, list))) == CHUNK_ROWS:
                pass

        def operation() -> Steps[None]:
            yield Query(RELEASE_HOLDS, (tenant, batch_id))
            yield Query(_BATCH, (batch_id,))

        await self._database.write(operation)

    async def delete_old(self, ended_before: float, created_before: float) -> None:
        """Deletes batches that ended early enough, batches that never started, and remains of interrupted deletions."""
        query = Query(_HIDE_OLD, (ended_before, created_before), alone=True)
        await self._database.write(single_query(query, lambda _: None))
        for batch_id, tenant in await self._database.read(_HIDDEN):
            await self._discard(batch_id, tenant)
