"""Deletes ended runs, batches, stored results, and artifacts without references.

A conversation is deleted as a whole, once its last run is old enough: later turns depend on earlier ones. A batch is
deleted with its items and their runs, never in parts; pipelines stay until a user deletes them. An artifact is deleted
in the pass after the one that deleted the last reference to it, so that a run that just reuses a result has stored its
own reference by then; and never within a day of its last write, since the reference to it may still be on its way.
"""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Self
from uuid import uuid4

import structlog

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.artifacts import ArtifactStore
from services.common.database import Database, Query, Rows, Steps
from services.common.supervision import supervise
from services.orchestrator.journal.artifacts import REFERENCED_ARTIFACTS, RELEASE_HOLDS
from services.orchestrator.journal.batches import still_running, unknown_batch
from services.orchestrator.journal.idempotency import IDEMPOTENCY_SECONDS
from services.orchestrator.journal.runs import ACTIVE
from services.orchestrator.journal.store import single_query

log = structlog.get_logger(__name__)

PASS_SECONDS = 3600.0
"""Interval of passes, across all processes."""
FIRST_SECONDS = 300.0
"""Time from the start of a process to its first pass."""
ARTIFACT_SECONDS = 24 * 3600.0
"""Shortest age of a deleted artifact, since its last write."""

UNFINISHED_SECONDS = 24 * 3600.0
"""A batch whose items did not all arrive within this time is deleted."""

CHUNK_ROWS, BATCH_CHUNK_ROWS = 50, 500
"""Rows of one transaction, and those of a deleted batch: other writers wait for it."""

_ACQUIRE = (
    "INSERT INTO retention_lease (name, owner, lease_until) VALUES ('retention', ?, {now} + ?)"
    " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until"
    " WHERE retention_lease.lease_until < {now} OR retention_lease.owner = excluded.owner RETURNING name"
)
_JOURNAL_NAME = (
    "INSERT INTO journal_name (id, name) VALUES (1, ?)"
    " ON CONFLICT (id) DO UPDATE SET name = journal_name.name RETURNING name"
)
_OLD_RUNS = (
    "DELETE FROM runs WHERE id IN (SELECT id FROM runs AS old"
    f" WHERE created < ? AND batch_id = '' AND NOT ({ACTIVE}) AND lease_until < ? AND NOT EXISTS"
    f" (SELECT 1 FROM runs AS later WHERE later.conversation_id = old.conversation_id AND later.tenant = old.tenant"
    f"  AND (later.{ACTIVE} OR later.lease_until >= ?)) LIMIT ?) RETURNING id"
)
"""The lease of an ended run starts with its last event."""
_OLD_MEMOS = (
    "DELETE FROM memos WHERE created < ? AND (tenant, digest) IN"
    " (SELECT tenant, digest FROM memos WHERE created < ? LIMIT ?) RETURNING digest"
)
_OLD_KEYS = (
    "DELETE FROM idempotency_keys WHERE created < ? AND (tenant, key) IN"
    " (SELECT tenant, key FROM idempotency_keys WHERE created < ? LIMIT ?) RETURNING key"
)
"""Compares the age twice, because a key can be reused after the inner comparison and is then recent."""
_OLD_COMMANDS = (
    "DELETE FROM commands WHERE id IN (SELECT commands.id FROM commands JOIN runs ON runs.id = run_id"
    f" WHERE NOT ({ACTIVE}) LIMIT ?) RETURNING id"
)

_HIDDEN_STATE = -1
"""State of a batch that is being deleted, which callers do not see."""

_BATCH_STATE = "SELECT state FROM batches WHERE id = ? AND tenant = ? AND state > 0"
_TO_HIDDEN = f"UPDATE batches SET state = {_HIDDEN_STATE}, idempotency_key = '', fence = fence + 1"
_HIDE = f"{_TO_HIDDEN} WHERE id = ?"
_HIDE_UNSTARTED = f"{_TO_HIDDEN} WHERE id = ? AND state = 0 RETURNING id"
_HIDE_OLD = f"{_TO_HIDDEN} WHERE (state >= {RUN_STATE_COMPLETED} AND ended < ?) OR (state = 0 AND created < ?)"
_HIDDEN = f"SELECT id, tenant FROM batches WHERE state = {_HIDDEN_STATE}"
_OF_BATCH = "batch_id = ? AND batch_id != ''"
"""The second condition lets SQLite use the index of batch runs."""
_BATCH_MEMOS = (
    "DELETE FROM memos WHERE (tenant, digest) IN (SELECT memos.tenant, memos.digest FROM runs"
    f" JOIN memos ON memos.run_id = runs.id WHERE runs.{_OF_BATCH} LIMIT ?) RETURNING digest"
)
_BATCH_RUNS = f"DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE {_OF_BATCH} LIMIT ?) RETURNING id"
_BATCH_OUTCOMES = (
    "DELETE FROM batch_runs WHERE (batch_id, item_index) IN"
    " (SELECT batch_id, item_index FROM batch_runs WHERE batch_id = ? LIMIT ?) RETURNING item_index"
)
_BATCH_ITEMS = _BATCH_OUTCOMES.replace("batch_runs", "batch_items")
_BATCH = "DELETE FROM batches WHERE id = ?"


class Retention:
    """Context manager that deletes expired data: in one process at a time, in small transactions.

    Args:
        database: of the journal.
        store: stores the artifacts.
        owner: unique name of this process.
        keep_seconds: how long ended runs and stored results are retained; 0: for ever.
    """

    def __init__(self, database: Database, store: ArtifactStore, owner: str, keep_seconds: float) -> None:
        self._database = database
        self._store = store
        self._owner = owner
        self._keep_seconds = keep_seconds
        self._batches = BatchRemoval(database)
        self._acquire_sql = _ACQUIRE.format(now=database.dialect.now)
        self._referenced_sql = REFERENCED_ARTIFACTS.format(among=database.dialect.among)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._collect_repeatedly(), name="retention")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def collect(self) -> bool:
        """Makes one pass; returns False if another process has made one within PASS_SECONDS, or makes one now.

        Raises:
            Unavailable: the journal or the store is unavailable.
        """
        if not await self._acquire():
            return False
        await self._collect_artifacts()
        now = time.time()
        await self._delete_old(_OLD_KEYS, *(now - IDEMPOTENCY_SECONDS,) * 2)
        await self._delete_old(_OLD_COMMANDS)
        before = now - self._keep_seconds if self._keep_seconds else 0.0
        await self._batches.delete_old(before, now - UNFINISHED_SECONDS)
        if self._keep_seconds:
            await self._delete_old(_OLD_RUNS, before, before, before)
            await self._delete_old(_OLD_MEMOS, before, before)
        return True

    async def _collect_repeatedly(self) -> None:
        await asyncio.sleep(FIRST_SECONDS)
        await supervise(self._passes, name="retention", pause=PASS_SECONDS)

    async def _passes(self) -> None:
        while True:
            await self.collect()
            await asyncio.sleep(PASS_SECONDS)

    async def _acquire(self) -> bool:
        """Acquires the right to collect for the next hour; returns False if another process has it."""
        return bool(await self._write(self._acquire_sql, self._owner, PASS_SECONDS))

    async def _delete_old(self, sql: str, *values: object) -> None:
        """Deletes the rows that a statement finds, in small transactions."""
        while len(await self._write(sql, *values, CHUNK_ROWS)) == CHUNK_ROWS and await self._acquire():
            pass

    async def _write(self, sql: str, *values: object) -> Rows:
        def operation() -> Steps[Rows]:
            return (yield Query(sql, values, alone=True))

        return await self._database.write(operation)

    async def _collect_artifacts(self) -> None:
        """Deletes artifacts without references, if no other journal shares the store."""
        if not await self._owns_store():
            return
        before = time.time() - ARTIFACT_SECONDS
        await self._store.discard_staged(last_written_before=before)
        removed = 0
        async for page in self._store.written_before(before):
            for tenant in sorted({tenant for tenant, _ in page}):
                old = [sha256 for owner, sha256 in page if owner == tenant]
                for sha256 in set(old) - await self._referenced(tenant, old):
                    if not await self._referenced(tenant, [sha256]):  # checked again right before the deletion
                        removed += await self._store.discard(tenant, sha256, last_written_before=before)
            if not await self._acquire():
                break
        log.info("artifacts deleted", count=removed)

    async def _referenced(self, tenant: str, sha256s: Sequence[str]) -> set[str]:
        texts = self._database.dialect.texts(sha256s)
        return {sha256 for (sha256,) in await self._database.read(self._referenced_sql, *(tenant, texts) * 3)}

    async def _owns_store(self) -> bool:
        """Whether the store is used by this journal alone: the first journal to collect writes its name into it."""
        ((name,),) = await self._write(_JOURNAL_NAME, uuid4().hex)
        notes = self._store.key_values("journals")
        names = await notes.all()
        if not names:
            await notes.put(name, b"")
        elif set(names) != {name}:
            log.warning(
                "no artifacts deleted: the store belongs to another journal",
                remedy="give each journal its own store, or remove _journals/ from the store if the other is gone",
            )
            return False
        return True


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
            found = yield Query(_BATCH_STATE, (batch_id, tenant))
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
        for part in (_BATCH_MEMOS, _BATCH_RUNS, _BATCH_OUTCOMES, _BATCH_ITEMS):
            query = Query(part, (batch_id, BATCH_CHUNK_ROWS), alone=True)
            while len(await self._database.write(single_query(query, list))) == BATCH_CHUNK_ROWS:
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
