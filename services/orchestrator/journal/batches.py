"""Stores batches: their rows, their items, and the run of each item.

The orchestrator that holds a batch's lease runs it, under a fencing token. An item starts in the transaction that
stores its run, and ends in the one that stores the run's last event, whichever orchestrator executes that run: so no
item is lost, and no ended item runs twice.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import TypeVar

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.batch_pb2 import BatchItem, NewItem
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RunState,
)
from services.common.database import Database, Operation, Query, Steps
from services.orchestrator.journal import batch_statements as sql
from services.orchestrator.journal.artifact_digests import digests
from services.orchestrator.journal.artifact_refs import HOLDS
from services.orchestrator.journal.batch_errors import no_plan, same_batch, still_running, unknown
from services.orchestrator.journal.batch_rows import (
    BatchRow,
    Claimed,
    Counts,
    Item,
    NewBatch,
    batch_row,
    counts,
    listed_item,
    queued_item,
)
from services.orchestrator.journal.errors import LeaseLost
from services.orchestrator.journal.journal import Journal
from services.orchestrator.journal.pages import Page, page
from services.orchestrator.journal.row_readers import single_query
from services.orchestrator.journal.row_writers import Inserts
from services.orchestrator.journal.statements import BATCH_RUNS
from services.orchestrator.journal.tables import NewRun
from services.orchestrator.leases import Lease

T = TypeVar("T")

CHANGED = "batches"
"""Sent as a change of the journal when a batch may be claimed."""


class BatchStore:
    """Batches of all tenants, for one owner.

    Args:
        database: of the journal.
        journal: of the same owner.
        owner: unique name among all orchestrators.
        lease_seconds: length of a lease.
    """

    def __init__(self, database: Database, journal: Journal, owner: str, lease_seconds: float) -> None:
        self._database = database
        self._journal = journal
        self._owner = owner
        self._lease = lease_seconds
        self._sql = sql.Statements(database.dialect)

    # ------------------------------------------------------------ creation

    def create(self, batch: NewBatch) -> "asyncio.Future[None]":
        """Stores a batch, which callers do not see before it starts."""
        values = (
            *(batch.id, batch.caller.tenant, time.time(), batch.caller.SerializeToString()),
            *(batch.spec.SerializeToString(), batch.pipeline.SerializeToString(), b""),
        )
        return self._write(single_query(Query(sql.CREATE, values), lambda _: None))

    def add(
        self, batch_id: str, tenant: str, first: int, items: Sequence[NewItem], invalid: dict[int, Failure]
    ) -> "asyncio.Future[None]":
        """Stores items of a batch, numbered from `first`; items in `invalid` have failed."""
        rows = [
            (batch_id, index, item.name, _without_name(item).SerializeToString())
            for index, item in enumerate(items, first)
        ]
        held = sorted({sha256 for item in items for sha256 in digests(item)})
        inserts: Inserts = [
            (sql.ITEMS, rows),
            (HOLDS, [(tenant, batch_id, sha256) for sha256 in held]),
            (BATCH_RUNS, [_failed_row(batch_id, index, failure) for index, failure in invalid.items()]),
        ]
        filled = [(into, values) for into, values in inserts if values]
        return self._write(single_query(Query(sql.NOTHING, (), filled), lambda _: None))

    def start(self, batch_id: str, tenant: str, key: str, digest: str, total: int) -> "asyncio.Future[str]":
        """Starts a batch whose items are all stored; returns its ID, or that of an earlier batch with the same key.

        Raises:
            AlreadyExists: IDEMPOTENCY, the key was used for another batch.
            NotFound: BATCH, it was deleted meanwhile.
        """

        def operation() -> Steps[str]:
            if key:
                yield Query(self._database.dialect.lock, (f"batch/{tenant}/{key}",))
                for known, known_digest in (yield Query(sql.KNOWN_KEY, (tenant, key))):
                    return same_batch(known, known_digest == digest)
            if not (yield Query(sql.START, (RUN_STATE_QUEUED, key, digest, total, batch_id))):
                raise unknown(batch_id)
            return batch_id

        return self._write(operation, CHANGED)

    # ------------------------------------------------------------ reading

    async def row(self, batch_id: str, tenant: str) -> BatchRow:
        """A batch of the tenant.

        Raises:
            NotFound: BATCH.
        """
        for values in await self._database.read(sql.ROW, batch_id, tenant):
            return batch_row(values)
        raise unknown(batch_id)

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
        return page(await self._database.read(sql.rows(before is not None, states), *values), batch_row)

    async def counts(self, batch_id: str, since: float) -> Counts:
        """Number of items by state, and of runs that ended after `since`."""
        return counts(await self._database.read(sql.COUNTS, since, batch_id))

    async def items(
        self,
        batch_id: str,
        after: int,
        limit: int,
        states: "Collection[RunState.ValueType]" = (),
        *,
        inputs: bool = True,
    ) -> Page[BatchItem]:
        """Items after an index, in order, with their outcomes, and with or without their inputs."""
        values = (batch_id, after, *states, limit + 1, batch_id, limit)
        return page(await self._database.read(sql.listed(states, inputs=inputs), *values), listed_item)

    # ------------------------------------------------------------ execution

    async def due(self, limit: int, held: Collection[str] = ()) -> list[tuple[str, str]]:
        """Batches without an owner, with their tenants: tenants round-robin, oldest first; without those in `held`."""
        found = await self._database.read(self._sql.due, self._sql.texts(held), limit)
        return [(batch_id, tenant) for batch_id, tenant in found]

    def claim(self, batch_ids: Collection[str]) -> "asyncio.Future[list[Claimed]]":
        """Claims those of the batches that have no owner."""
        values = (self._sql.texts(batch_ids), self._owner, self._lease, RUN_STATE_RUNNING)
        query = Query(self._sql.claim, values, alone=True)
        return self._write(single_query(query, lambda found: [Claimed(fence, batch_row(row)) for fence, *row in found]))

    def renew(self, batch_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
        """Renews leases; returns the fencing tokens of the batches that this owner still has."""
        query = Query(self._sql.renew, (self._lease, self._sql.texts(batch_ids), self._owner), alone=True)
        return self._write(single_query(query, dict))

    def release(self) -> "asyncio.Future[None]":
        """Releases all batches of this owner, for others to claim at once."""
        return self._write(single_query(Query(sql.RELEASE, (self._owner,), alone=True), lambda _: None), CHANGED)

    async def pending_command(self, batch_id: str) -> str:
        """The command for a batch; empty: none."""
        found = await self._database.read(sql.COMMAND, batch_id)
        return str(found[0][0]) if found else ""

    async def next_items(self, batch: BatchRow, after: int, limit: int, max_bytes: int) -> list[Item]:
        """Items to run after an index, in order, up to `max_bytes`, but at least one."""
        query = sql.NEXT_AGAIN if batch.failed_only else sql.NEXT
        found = await self._database.read(query, batch.id, after, limit, batch.id, max_bytes)
        return [queued_item(values) for values in found]

    async def active_runs(self, batch_id: str) -> list[str]:
        """IDs of items' runs that have started and not ended."""
        return [run_id for (run_id,) in await self._database.read(sql.ACTIVE_RUNS, batch_id)]

    def add_runs(self, claimed: Claimed, runs: Sequence[NewRun], invalid: dict[int, Failure]) -> "asyncio.Future[None]":
        """Stores the runs of items, and the failures of items that cannot run.

        Raises:
            LeaseLost: another orchestrator owns the batch.
        """
        batch_id = claimed.batch.id
        failed = [_failed_row(batch_id, index, failure) for index, failure in invalid.items()]

        def operation() -> Steps[None]:
            yield from self._check_owner(claimed, [(BATCH_RUNS, failed)] if failed else [])
            for run in runs:
                started = (batch_id, run.batch.index, run.id, RUN_STATE_RUNNING, 0.0, b"")
                yield self._journal.insert_run(run, [(BATCH_RUNS, [started])])

        return self._journal.track_claim(self._write(operation))

    def set_pipeline(self, claimed: Claimed, pipeline: Pipeline) -> "asyncio.Future[None]":
        """Stores the pipeline that the items run.

        Raises:
            LeaseLost: another orchestrator owns the batch.
        """
        return self._update(claimed, sql.SET_PIPELINE, pipeline.SerializeToString())

    def set_waiting_reason(self, claimed: Claimed, reason: str) -> "asyncio.Future[None]":
        """Stores why no new item starts at the moment; empty: items start.

        Raises:
            LeaseLost: another orchestrator owns the batch.
        """
        return self._update(claimed, sql.SET_WAITING_REASON, reason)

    def end(self, claimed: Lease, state: "RunState.ValueType", failure: Failure | None) -> "asyncio.Future[None]":
        """Stores the end of a batch.

        Raises:
            LeaseLost: another orchestrator owns the batch.
        """
        encoded = failure.SerializeToString() if failure else b""
        return self._update(claimed, self._sql.end, state, encoded)

    # ------------------------------------------------------------ commands

    def cancel(self, batch_id: str) -> "asyncio.Future[None]":
        """Stores a cancel command."""
        return self._write(single_query(Query(sql.CANCEL, (batch_id,)), lambda _: None), batch_id)

    def resume(self, batch_id: str, tenant: str, *, failed_only: bool) -> "asyncio.Future[None]":
        """Queues the items that have not run, or only those that have failed; without such items nothing changes.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended, and failed_only is set or it is being cancelled;
                or UNPLANNED, failed_only is set, and no item has run.
        """
        again = (RUN_STATE_INCOMPLETE, RUN_STATE_FAILED) if failed_only else (RUN_STATE_CANCELLED,) * 2

        def operation() -> Steps[None]:
            found = yield Query(sql.STATE, (batch_id, tenant))
            if not found:
                raise unknown(batch_id)
            state, total, command, has_plan = found[0]
            if state not in ENDED_RUN_STATES:
                if failed_only or command:
                    raise still_running(batch_id)
                return
            if failed_only and not has_plan:
                raise no_plan(batch_id)
            requeued = yield Query(sql.QUEUE_AGAIN, (RUN_STATE_QUEUED, batch_id, *again))
            ((started,),) = yield Query(sql.STARTED, (batch_id,))
            if requeued or (not failed_only and started < total):
                yield Query(sql.RESUME, (RUN_STATE_QUEUED, int(failed_only), b"", batch_id))

        return self._write(operation, CHANGED)

    def _update(self, claimed: Lease, query: str, *values: object) -> "asyncio.Future[None]":
        def operation() -> Steps[None]:
            if not (yield Query(query, (*values, claimed.id, claimed.fence), alone=True)):
                raise LeaseLost(f"another orchestrator owns batch {claimed.id}")

        return self._write(operation, claimed.id)

    def _check_owner(self, claimed: Claimed, inserts: Inserts) -> Steps[None]:
        if not (yield Query(sql.OWNED, (claimed.batch.id, claimed.fence), inserts)):
            raise LeaseLost(f"another orchestrator owns batch {claimed.batch.id}")

    def _write(self, operation: Operation[T], topic: str = "") -> "asyncio.Future[T]":
        return self._database.write(operation, topic)


def _without_name(item: NewItem) -> NewItem:
    """The item without its name, which has a column of its own."""
    return NewItem(inputs=item.inputs, failure=item.failure if item.HasField("failure") else None)


def _failed_row(batch_id: str, index: int, failure: Failure) -> tuple[str, int, str, int, float, bytes]:
    outcome = BatchItem(failure=failure).SerializeToString()
    return batch_id, index, "", RUN_STATE_FAILED, time.time(), outcome
