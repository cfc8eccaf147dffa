"""Batches: their rows, and the writes of the orchestrator that runs them.

The orchestrator that holds a batch's lease runs it, under a fencing token. An item starts in the transaction that
stores its run, and ends in the one that stores the run's last event, whichever orchestrator executes that run: so no
item is lost, and no ended item runs twice.
"""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RunState,
)
from services.common.database import Database, Query, Steps
from services.common.errors import FailedPrecondition
from services.orchestrator.journal.batch_items import BatchItemStore
from services.orchestrator.journal.batch_rows import (
    BATCH_COLUMNS,
    BatchRow,
    Claimed,
    NewBatch,
    batch_row,
    invalid_item_rows,
    started_rows,
)
from services.orchestrator.journal.errors import LeaseLost, key_reused, still_running, unknown_batch
from services.orchestrator.journal.journal import Journal
from services.orchestrator.journal.leases import Lease
from services.orchestrator.journal.queries import Page, paged, single_query, to_page
from services.orchestrator.journal.runs import NewRun

CHANGED = "batches"
"""Sent as a change of the journal when a batch may be claimed."""

_ACTIVE = f"state > 0 AND state < {RUN_STATE_COMPLETED}"
"""Condition of a batch that has started and not ended; in state 0 its items are still arriving."""

_CREATE = (
    "INSERT INTO batches (id, tenant, state, created, caller, spec, pipeline, failure) VALUES (?, ?, 0, ?, ?, ?, ?, ?)"
)
_KNOWN_KEY = "SELECT id, digest FROM batches WHERE tenant = ? AND idempotency_key = ? AND state > 0"
_START = (
    "UPDATE batches SET state = ?, idempotency_key = ?, digest = ?, total = ? WHERE id = ? AND state = 0 RETURNING id"
)
_ROW = f"SELECT {BATCH_COLUMNS} FROM batches WHERE id = ? AND tenant = ? AND state > 0"

_LOCK_OWNED = "UPDATE batches SET fence = fence WHERE id = ? AND fence = ? RETURNING id"
"""Changes nothing, but prevents other owners from claiming the batch until the transaction ends."""
_SET_PIPELINE = "UPDATE batches SET pipeline = ? WHERE id = ? AND fence = ? RETURNING id"
_SET_WAITING_REASON = "UPDATE batches SET waiting_for = ? WHERE id = ? AND fence = ? RETURNING id"
_RELEASE = f"UPDATE batches SET lease_until = 0 WHERE owner = ? AND {_ACTIVE}"

_CANCEL = f"UPDATE batches SET is_cancelled = 1 WHERE id = ? AND {_ACTIVE}"
_IS_CANCELLED = "SELECT is_cancelled FROM batches WHERE id = ?"
_STATE = "SELECT state, total, is_cancelled, LENGTH(pipeline) FROM batches WHERE id = ? AND tenant = ? AND state > 0"
_REQUEUE = "UPDATE batch_runs SET state = ? WHERE batch_id = ? AND state IN (?, ?) RETURNING item_index"
_STARTED_ITEMS = "SELECT COUNT(*) FROM batch_runs WHERE batch_id = ?"
_RESUME = (
    "UPDATE batches SET state = ?, failed_only = ?, failure = ?, is_cancelled = 0, ended = 0, round = round + 1,"
    " lease_until = 0 WHERE id = ?"
)


def _list(before: bool, states: Collection[int]) -> str:
    """A page of a tenant's batches, newest first."""
    where = ["tenant = ?", "state > 0"]
    if before:
        where.append("(created, id) < (?, ?)")
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
    return paged(
        "SELECT id AS row_key, created AS batch_created, LENGTH(spec) + LENGTH(pipeline) AS size"
        f" FROM batches WHERE {' AND '.join(where)}",
        "batch_created DESC, row_key DESC",
        f"SELECT found_rows, {BATCH_COLUMNS} FROM measured JOIN batches ON id = row_key",
    )


class BatchStore(BatchItemStore):
    """Batches of all tenants, for one owner.

    Args:
        database: of the journal.
        journal: of the same owner.
        owner: unique name among all orchestrators.
        lease_seconds: length of a lease.
    """

    def __init__(self, database: Database, journal: Journal, owner: str, lease_seconds: float) -> None:
        super().__init__(database)
        self._journal = journal
        self._owner = owner
        self._lease_seconds = lease_seconds
        now, among = database.dialect.now, database.dialect.among
        due = f"{_ACTIVE} AND lease_until < {now}"
        self._due_sql = (
            "SELECT id, tenant FROM (SELECT id, tenant, created, ROW_NUMBER() OVER (PARTITION BY tenant"
            f" ORDER BY created, id) AS position FROM batches WHERE {due} AND NOT (id {among})) AS positions"
            " ORDER BY position, created, id LIMIT ?"
        )
        self._claim_sql = (
            f"WITH due AS MATERIALIZED (SELECT id FROM batches WHERE {due} AND id {among}"
            f"{database.dialect.skip_locked})"
            f" UPDATE batches SET owner = ?, fence = fence + 1, lease_until = {now} + ?, state = ?, claimed = {now}"
            f" WHERE id IN (SELECT id FROM due) RETURNING fence, {BATCH_COLUMNS}"
        )
        self._renew_sql = (
            f"UPDATE batches SET lease_until = {now} + ? WHERE id {among} AND owner = ? RETURNING id, fence"
        )
        self._end_sql = (
            f"UPDATE batches SET state = ?, failure = ?, waiting_for = '', ended = {now} WHERE id = ? AND fence = ?"
            " RETURNING id"
        )

    def create(self, batch: NewBatch) -> "asyncio.Future[None]":
        """Stores a batch, which callers do not see before it starts."""
        values = (
            *(batch.id, batch.caller.tenant, time.time(), batch.caller.SerializeToString()),
            *(batch.spec.SerializeToString(), batch.pipeline.SerializeToString(), b""),
        )
        return self._write(single_query(Query(_CREATE, values), lambda _: None))

    def start(self, batch_id: str, tenant: str, key: str, digest: str, total: int) -> "asyncio.Future[str]":
        """Starts a batch whose items are all stored; returns its ID, or that of an earlier batch with the same key.

        Raises:
            AlreadyExists: IDEMPOTENCY, the key was used for another batch.
            NotFound: BATCH, it was deleted meanwhile.
        """

        def operation() -> Steps[str]:
            if key:
                yield Query(self._database.dialect.lock, (f"batch/{tenant}/{key}",))
                for known_id, known_digest in (yield Query(_KNOWN_KEY, (tenant, key))):
                    if known_digest != digest:
                        raise key_reused("batch")
                    return str(known_id)
            if not (yield Query(_START, (RUN_STATE_QUEUED, key, digest, total, batch_id))):
                raise unknown_batch(batch_id)
            return batch_id

        return self._write(operation, CHANGED)

    async def row(self, batch_id: str, tenant: str) -> BatchRow:
        """A batch of the tenant.

        Raises:
            NotFound: BATCH.
        """
        for values in await self._database.read(_ROW, batch_id, tenant):
            return batch_row(values)
        raise unknown_batch(batch_id)

    async def rows(
        self,
        tenant: str,
        *,
        limit: int,
        before: tuple[float, str] | None = None,
        states: "Collection[RunState.ValueType]" = (),
    ) -> Page[BatchRow]:
        """Batches of the tenant, newest first, created before a (created, ID)."""
        values = (tenant, *(before or ()), *states, limit + 1, limit)
        return to_page(await self._database.read(_list(before is not None, states), *values), batch_row)

    # ------------------------------------------------------------ leases

    async def due(self, limit: int, held: Collection[str] = ()) -> list[tuple[str, str]]:
        """Batches without an owner, with their tenants: tenants round-robin, oldest first; without those in `held`."""
        found = await self._database.read(self._due_sql, self._database.dialect.texts(held), limit)
        return [(batch_id, tenant) for batch_id, tenant in found]

    def claim(self, batch_ids: Collection[str]) -> "asyncio.Future[list[Claimed]]":
        """Claims those of the batches that have no owner."""
        values = (self._database.dialect.texts(batch_ids), self._owner, self._lease_seconds, RUN_STATE_RUNNING)
        query = Query(self._claim_sql, values, alone=True)
        return self._write(single_query(query, lambda found: [Claimed(fence, batch_row(row)) for fence, *row in found]))

    def renew(self, batch_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
        """Renews leases; returns the fencing tokens of the batches that this owner still has."""
        values = (self._lease_seconds, self._database.dialect.texts(batch_ids), self._owner)
        return self._write(single_query(Query(self._renew_sql, values, alone=True), dict))

    def release(self) -> "asyncio.Future[None]":
        """Releases all batches of this owner, for others to claim at once."""
        return self._write(single_query(Query(_RELEASE, (self._owner,), alone=True), lambda _: None), CHANGED)

    # ------------------------------------------------------------ writes of the owner

    def add_runs(
        self, claimed: Claimed, runs: Sequence[NewRun], invalid: Mapping[int, Failure]
    ) -> "asyncio.Future[None]":
        """Stores the runs of items, and the failures of items that cannot run.

        Raises:
            LeaseLost: another orchestrator owns the batch.
        """
        batch_id = claimed.batch.id

        def operation() -> Steps[None]:
            if not (yield Query(_LOCK_OWNED, (batch_id, claimed.fence), invalid_item_rows(batch_id, invalid))):
                raise _lease_lost(batch_id)
            for run in runs:
                yield self._journal.insert_run(run, started_rows(batch_id, run.batch.index, run.id))

        return self._journal.track_claim(self._write(operation))

    def set_pipeline(self, claimed: Claimed, pipeline: Pipeline) -> "asyncio.Future[None]":
        """Stores the pipeline that the items run.

        Raises:
            LeaseLost: another orchestrator owns the batch.
        """
        return self._update(claimed, _SET_PIPELINE, pipeline.SerializeToString())

    def set_waiting_reason(self, claimed: Claimed, reason: str) -> "asyncio.Future[None]":
        """Stores why no new item starts at the moment; empty: items start.

        Raises:
            LeaseLost: another orchestrator owns the batch.
        """
        return self._update(claimed, _SET_WAITING_REASON, reason)

    def end(self, lease: Lease, state: "RunState.ValueType", failure: Failure | None) -> "asyncio.Future[None]":
        """Stores the end of a batch.

        Raises:
            LeaseLost: another orchestrator owns the batch.
        """
        return self._update(lease, self._end_sql, state, failure.SerializeToString() if failure else b"")

    def _update(self, lease: Lease, query: str, *values: object) -> "asyncio.Future[None]":
        def operation() -> Steps[None]:
            if not (yield Query(query, (*values, lease.id, lease.fence), alone=True)):
                raise _lease_lost(lease.id)

        return self._write(operation, lease.id)

    # ------------------------------------------------------------ commands

    def cancel(self, batch_id: str) -> "asyncio.Future[None]":
        """Stores a cancel command."""
        return self._write(single_query(Query(_CANCEL, (batch_id,)), lambda _: None), batch_id)

    async def is_cancelled(self, batch_id: str) -> bool:
        """Whether a cancel command is stored for a batch."""
        return any(cancelled for (cancelled,) in await self._database.read(_IS_CANCELLED, batch_id))

    def resume(self, batch_id: str, tenant: str, *, failed_only: bool) -> "asyncio.Future[None]":
        """Queues the items that have not run, or only those that have failed; without such items nothing changes.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended, and failed_only is set or it is being cancelled;
                or UNPLANNED, failed_only is set, and no item has run.
        """
        again = (RUN_STATE_INCOMPLETE, RUN_STATE_FAILED) if failed_only else (RUN_STATE_CANCELLED,) * 2

        def operation() -> Steps[None]:
            found = yield Query(_STATE, (batch_id, tenant))
            if not found:
                raise unknown_batch(batch_id)
            state, total, is_cancelled, has_plan = found[0]
            if state not in ENDED_RUN_STATES:
                if failed_only or is_cancelled:
                    raise still_running(batch_id)
                return
            if failed_only and not has_plan:
                raise _no_plan(batch_id)
            requeued = yield Query(_REQUEUE, (RUN_STATE_QUEUED, batch_id, *again))
            ((started,),) = yield Query(_STARTED_ITEMS, (batch_id,))
            if requeued or (not failed_only and started < total):
                yield Query(_RESUME, (RUN_STATE_QUEUED, int(failed_only), b"", batch_id))

        return self._write(operation, CHANGED)


def _no_plan(batch_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"batch {batch_id} has no plan: none of its items has run, so none has failed",
        reason="UNPLANNED",
        remedy="resume it without failed_only",
    )


def _lease_lost(batch_id: str) -> LeaseLost:
    return LeaseLost(f"another orchestrator owns batch {batch_id}")
