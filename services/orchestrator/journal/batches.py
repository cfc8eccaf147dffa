"""Batches: their rows, and the writes of the orchestrator that runs them.

The orchestrator that holds a batch's lease runs it, under a fencing token. An item starts in the transaction that
stores its run, and ends in the one that stores the run's last event, whichever orchestrator executes that run: so no
item is lost, and no ended item runs twice.
"""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protos.hugginggpt.internal.v1.orchestrator_pb2 import EndedBatch
from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.batch_pb2 import BatchCounts, BatchSpec
from protos.hugginggpt.v1.caller_pb2 import Caller
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
from services.common.errors import FailedPrecondition, NotFound
from services.orchestrator.journal.batch_items import BatchItemStore, batch_counts, invalid_item_rows, started_rows
from services.orchestrator.journal.idempotency import key_reused
from services.orchestrator.journal.journal import Journal
from services.orchestrator.journal.leases import Lease
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.journal.store import (
    LeaseLost,
    Page,
    decode,
    paged,
    single_query,
    to_page,
    to_timestamp,
)

CHANGED = "batches"
"""Sent as a change of the journal when a batch may be claimed."""

MAX_CACHED = 1_000
"""Ended batches whose counts are cached: a follower requests the last ones repeatedly."""

_COLUMNS = (
    "id, tenant, state, created, ended, claimed, total, round, failed_only, waiting_for,"
    " caller, failure, spec, pipeline"
)

_ACTIVE = f"state > 0 AND state < {RUN_STATE_COMPLETED}"
"""Condition of a batch that has started and not ended; in state 0 its items are still arriving."""

_CREATE = (
    "INSERT INTO batches (id, tenant, state, created, caller, spec, pipeline, failure) VALUES (?, ?, 0, ?, ?, ?, ?, ?)"
)
_KNOWN_KEY = "SELECT id, digest FROM batches WHERE tenant = ? AND idempotency_key = ? AND state > 0"
_START = (
    "UPDATE batches SET state = ?, idempotency_key = ?, digest = ?, total = ? WHERE id = ? AND state = 0 RETURNING id"
)
_ROW = f"SELECT {_COLUMNS} FROM batches WHERE id = ? AND tenant = ? AND state > 0"

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

_ENDED = (
    "SELECT id, round, caller, spec, state, total, created, ended FROM batches"
    f" WHERE state >= {RUN_STATE_COMPLETED} AND ended > 0 AND ended >= ? AND (ended, id) > (?, ?)"
    " ORDER BY ended, id LIMIT ?"
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
        f"SELECT found_rows, {_COLUMNS} FROM measured JOIN batches ON id = row_key",
    )


@dataclass(frozen=True)
class NewBatch:
    """A batch to store."""

    id: str
    caller: Caller
    spec: BatchSpec
    pipeline: Pipeline
    """Empty if the batch is planned when it runs."""


@dataclass(frozen=True)
class BatchRow:
    """A batch without its items."""

    id: str
    tenant: str
    state: "RunState.ValueType"
    created: float
    ended: float
    total: int
    caller: Caller
    spec: BatchSpec
    pipeline: Pipeline
    round: int
    """Number of times it was started or resumed."""
    failed_only: bool
    """Only items queued again by a resume run."""
    waiting_for: str
    failure: Failure
    claimed_at: float
    """When it was last claimed, in seconds since the epoch; 0: never."""
    is_readable: bool = True
    """False if a part of it cannot be decoded and is empty here: then it must not run."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_RUN_STATES

    @property
    def is_planned(self) -> bool:
        return bool(self.pipeline.plan.tasks)


@dataclass(frozen=True, eq=False)
class Claimed:
    """A batch to run, and the fencing token of its owner."""

    fence: int
    batch: BatchRow

    @property
    def id(self) -> str:
        return self.batch.id


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
            f" WHERE id IN (SELECT id FROM due) RETURNING fence, {_COLUMNS}"
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
            return _batch_row(values)
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
        return to_page(await self._database.read(_list(before is not None, states), *values), _batch_row)

    # ------------------------------------------------------------ leases

    async def due(self, limit: int, held: Collection[str] = ()) -> list[tuple[str, str]]:
        """Batches without an owner, with their tenants: tenants round-robin, oldest first; without those in `held`."""
        found = await self._database.read(self._due_sql, self._database.dialect.texts(held), limit)
        return [(batch_id, tenant) for batch_id, tenant in found]

    def claim(self, batch_ids: Collection[str]) -> "asyncio.Future[list[Claimed]]":
        """Claims those of the batches that have no owner."""
        values = (self._database.dialect.texts(batch_ids), self._owner, self._lease_seconds, RUN_STATE_RUNNING)
        query = Query(self._claim_sql, values, alone=True)
        return self._write(
            single_query(query, lambda found: [Claimed(fence, _batch_row(row)) for fence, *row in found])
        )

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

        def operation() -> "Steps[None]":  # not evaluated at each call
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


class EndedBatches:
    """Ended batches in the order of their ends."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._items = BatchItemStore(database)
        self._counts: dict[tuple[str, int], BatchCounts] = {}

    async def since(self, moment: float, after: tuple[float, str], limit: int) -> list[tuple[float, EndedBatch]]:
        """Batches that ended at or after `moment` (seconds since the epoch), after an (ended, ID); with their ends."""
        found = await self._database.read(_ENDED, moment, *after, limit)
        return [(row[-1], await self._ended_batch(*row)) for row in found]

    async def _ended_batch(self, id_: str, round_: int, caller: bytes, spec: bytes, *row: Any) -> EndedBatch:
        state, total, created, ended = row
        pipeline = (decode(BatchSpec, spec) or BatchSpec()).pipeline
        batch = EndedBatch(
            batch_id=id_,
            round=round_,
            caller=decode(Caller, caller),
            state=state,
            pipeline=pipeline if pipeline.name else None,
            counts=await self._cached_counts(id_, round_, total),
        )
        batch.create_time.CopyFrom(to_timestamp(created))
        batch.end_time.CopyFrom(to_timestamp(ended))
        return batch

    async def _cached_counts(self, id_: str, round_: int, total: int) -> BatchCounts:
        known = self._counts.get((id_, round_))
        if known is None:
            if len(self._counts) >= MAX_CACHED:
                self._counts.clear()
            found = await self._items.counts(id_, since=0.0)
            known = self._counts[id_, round_] = batch_counts(total, found)
        return known


def _batch_row(values: Sequence[Any]) -> BatchRow:
    """Converts a row with the columns _COLUMNS."""
    id_, tenant, state, created, ended, claimed, total, round_, failed_only, waiting_for, *stored = values
    caller, failure = decode(Caller, stored[0]), decode(Failure, stored[1])
    spec, pipeline = decode(BatchSpec, stored[2]), decode(Pipeline, stored[3])
    return BatchRow(
        id=id_,
        tenant=tenant,
        state=state,
        created=created,
        ended=ended,
        total=total,
        caller=caller or Caller(tenant=tenant),
        spec=spec or BatchSpec(),
        pipeline=pipeline or Pipeline(),
        round=round_,
        failed_only=bool(failed_only),
        waiting_for=waiting_for,
        failure=failure or Failure(),
        claimed_at=claimed,
        is_readable=None not in (caller, spec, pipeline, failure),
    )


def unknown_batch(batch_id: str) -> NotFound:
    """The error for a batch that does not exist, or belongs to another tenant."""
    remedy = "check the ID; `hugginggpt batches` or `GET /v1/pipeline-batches` lists them"
    return NotFound(f"there is no batch {batch_id}", reason="BATCH", remedy=remedy)


def still_running(batch_id: str) -> FailedPrecondition:
    """The error for an operation that needs an ended batch."""
    remedy = "cancel it first, or wait for its end"
    return FailedPrecondition(f"batch {batch_id} has not ended", reason="RUNNING", remedy=remedy)


def _no_plan(batch_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"batch {batch_id} has no plan: none of its items has run, so none has failed",
        reason="UNPLANNED",
        remedy="resume it without failed_only",
    )


def _lease_lost(batch_id: str) -> LeaseLost:
    return LeaseLost(f"another orchestrator owns batch {batch_id}")
