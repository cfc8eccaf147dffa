"""Batches in the journal's database: their rows, their items, and which run each item became.

A batch is driven by whoever holds its lease, under a fence as a run is. An item begins in the transaction that keeps
its run, and ends in the one that keeps the run's last event, whoever drives that run: so no item is lost, and none that
has ended runs twice.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import TypeVar

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
from services.orchestrator.journal.batch_errors import same_batch, under_way, unknown, unplanned
from services.orchestrator.journal.batch_rows import (
    BatchRow,
    Claimed,
    Counts,
    Item,
    NewBatch,
    batch_row,
    counts,
    listed,
    queued,
)
from services.orchestrator.journal.errors import LeaseLost
from services.orchestrator.journal.journal import Journal
from services.orchestrator.journal.pages import Page, page
from services.orchestrator.journal.row_readers import only
from services.orchestrator.journal.row_writers import Puts
from services.orchestrator.journal.statements import BATCH_RUNS
from services.orchestrator.journal.tables import ENDED, NewRun

T = TypeVar("T")

CHANGED = "batches"
"""What is told where a batch may be claimed."""


class KeptBatches:
    """The batches of all tenants, for one owner.

    Args:
        database: the journal's.
        journal: of the same owner.
        owner: who drives; unique among all orchestrators.
        lease_seconds: how long a batch stays the owner's without renewal.
    """

    def __init__(self, database: Database, journal: Journal, owner: str, lease_seconds: float) -> None:
        self._database = database
        self._journal = journal
        self._owner = owner
        self._lease = lease_seconds
        self._sql = sql.Statements(database.dialect)

    # ------------------------------------------------------------ beginning

    def begin(self, batch: NewBatch) -> "asyncio.Future[None]":
        """Keeps a batch that nobody sees before all its items are there."""
        values = (
            *(batch.id, batch.caller.tenant, time.time(), batch.caller.SerializeToString()),
            *(batch.spec.SerializeToString(), batch.pipeline.SerializeToString(), b""),
        )
        return self._write(only(Query(sql.BEGIN, values), lambda _: None))

    def add(
        self, batch_id: str, tenant: str, first: int, items: Sequence[NewItem], misfits: dict[int, Failure]
    ) -> "asyncio.Future[None]":
        """Keeps more items of a batch, numbered from first; those that do not fit have failed."""
        rows = [
            (batch_id, index, item.name, _unnamed(item).SerializeToString()) for index, item in enumerate(items, first)
        ]
        held = sorted({sha256 for item in items for sha256 in digests(item)})
        puts: Puts = [
            (sql.ITEMS, rows),
            (HOLDS, [(tenant, batch_id, sha256) for sha256 in held]),
            (BATCH_RUNS, [_misfit(batch_id, index, failure) for index, failure in misfits.items()]),
        ]
        filled = [(into, values) for into, values in puts if values]
        return self._write(only(Query(sql.ASKED, (), filled), lambda _: None))

    def start(self, batch_id: str, tenant: str, key: str, digest: str, total: int) -> "asyncio.Future[str]":
        """Lets a batch run whose items are all there; gives its id, an earlier one if the key stands for that.

        Raises:
            AlreadyExists: IDEMPOTENCY, the key stands for another batch.
            NotFound: BATCH, it was taken back.
        """

        def operation() -> Steps[str]:
            if key:
                yield Query(self._database.dialect.lock, (f"batch/{tenant}/{key}",))
                for known, of_known in (yield Query(sql.KNOWN_KEY, (tenant, key))):
                    return same_batch(known, of_known == digest)
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
        """Batches of the tenant, newest first, older than a (created, id)."""
        values = (tenant, *(before or ()), *states, limit + 1, limit)
        return page(await self._database.read(sql.rows(before is not None, states), *values), batch_row)

    async def counts(self, batch_id: str, since: float) -> Counts:
        """How many items stand where, and how many have ended since."""
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
        """Items behind an index, in order, with what became of them, and with or without their inputs."""
        values = (batch_id, after, *states, limit + 1, batch_id, limit)
        return page(await self._database.read(sql.listed(states, inputs=inputs), *values), listed)

    # ------------------------------------------------------------ driving

    async def due(self, limit: int, held: Collection[str] = ()) -> list[tuple[str, str]]:
        """Batches that nobody drives, each with its tenant: tenants in turn, the oldest first; not those held here."""
        found = await self._database.read(self._sql.due, self._sql.texts(held), limit)
        return [(batch_id, tenant) for batch_id, tenant in found]

    def claim(self, batch_ids: Collection[str]) -> "asyncio.Future[list[Claimed]]":
        """Takes those of the batches that nobody drives by now."""
        values = (self._sql.texts(batch_ids), self._owner, self._lease, RUN_STATE_RUNNING)
        query = Query(self._sql.claim, values, alone=True)
        return self._write(only(query, lambda found: [Claimed(fence, batch_row(row)) for fence, *row in found]))

    def renew(self, batch_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
        """Keeps batches for another lease; gives the fences of those that are still this owner's."""
        query = Query(self._sql.renew, (self._lease, self._sql.texts(batch_ids), self._owner), alone=True)
        return self._write(only(query, dict))

    def release(self) -> "asyncio.Future[None]":
        """Lets go of all batches of this owner, for others to claim at once."""
        return self._write(only(Query(sql.RELEASE, (self._owner,), alone=True), lambda _: None), CHANGED)

    async def wish(self, batch_id: str) -> str:
        """What somebody wants of the batch; empty: nothing."""
        found = await self._database.read(sql.WISH, batch_id)
        return str(found[0][0]) if found else ""

    async def next(self, batch: BatchRow, after: int, limit: int, enough: int) -> list[Item]:
        """Items behind an index that are to run, in order, until they have enough bytes: one at least."""
        query = sql.AGAIN if batch.failed_only else sql.NEXT
        found = await self._database.read(query, batch.id, after, limit, batch.id, enough)
        return [queued(values) for values in found]

    async def begun(self, batch_id: str) -> list[str]:
        """Runs of items that have begun and not ended."""
        return [run_id for (run_id,) in await self._database.read(sql.UNDER_WAY, batch_id)]

    def admit(self, claimed: Claimed, runs: Sequence[NewRun], misfits: dict[int, Failure]) -> "asyncio.Future[None]":
        """Keeps items' runs, or that they cannot become one.

        Raises:
            LeaseLost: another owner drives the batch.
        """
        batch_id = claimed.batch.id
        failed = [_misfit(batch_id, index, failure) for index, failure in misfits.items()]

        def operation() -> Steps[None]:
            yield from self._held(claimed, [(BATCH_RUNS, failed)] if failed else [])
            for run in runs:
                begun = (batch_id, run.batch.index, run.id, RUN_STATE_RUNNING, 0.0, b"")
                yield self._journal.keeping(run, [(BATCH_RUNS, [begun])])

        return self._journal.takes_on(self._write(operation))

    def planned(self, claimed: Claimed, pipeline: Pipeline) -> "asyncio.Future[None]":
        """Keeps what its items run through.

        Raises:
            LeaseLost: another owner drives the batch.
        """
        return self._told(claimed, sql.PLANNED, pipeline.SerializeToString())

    def waits(self, claimed: Claimed, reason: str) -> "asyncio.Future[None]":
        """Keeps why no new item begins at the moment; empty: they do.

        Raises:
            LeaseLost: another owner drives the batch.
        """
        return self._told(claimed, sql.WAITS, reason)

    def end(self, claimed: Claimed, state: "RunState.ValueType", failure: Failure | None) -> "asyncio.Future[None]":
        """Keeps that the batch is over.

        Raises:
            LeaseLost: another owner drives the batch.
        """
        kept = failure.SerializeToString() if failure else b""
        return self._told(claimed, self._sql.end, state, kept)

    # ------------------------------------------------------------ wishes

    def cancel(self, batch_id: str) -> "asyncio.Future[None]":
        """Leaves the wish that it stops."""
        return self._write(only(Query(sql.CANCEL, (batch_id,)), lambda _: None), batch_id)

    def resume(self, batch_id: str, tenant: str, *, failed_only: bool) -> "asyncio.Future[None]":
        """Lets the items run that have not, or only those that have failed; nothing happens if there are none.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended, and failed ones are wanted or it is just being cancelled;
                or UNPLANNED, failed ones are wanted, and none has run.
        """
        again = (RUN_STATE_INCOMPLETE, RUN_STATE_FAILED) if failed_only else (RUN_STATE_CANCELLED,) * 2

        def operation() -> Steps[None]:
            found = yield Query(sql.STATE, (batch_id, tenant))
            if not found:
                raise unknown(batch_id)
            state, total, wish, planned = found[0]
            if state not in ENDED:
                if failed_only or wish:
                    raise under_way(batch_id)
                return
            if failed_only and not planned:
                raise unplanned(batch_id)
            wanted = yield Query(sql.REPEAT, (RUN_STATE_QUEUED, batch_id, *again))
            ((begun,),) = yield Query(sql.BEGUN, (batch_id,))
            if wanted or (not failed_only and begun < total):
                yield Query(sql.RESUME, (RUN_STATE_QUEUED, int(failed_only), b"", batch_id))

        return self._write(operation, CHANGED)

    def _told(self, claimed: Claimed, query: str, *values: object) -> "asyncio.Future[None]":
        def operation() -> Steps[None]:
            if not (yield Query(query, (*values, claimed.batch.id, claimed.fence), alone=True)):
                raise LeaseLost(f"batch {claimed.batch.id} is another orchestrator's by now")

        return self._write(operation, claimed.batch.id)

    def _held(self, claimed: Claimed, puts: Puts) -> Steps[None]:
        if not (yield Query(sql.HELD, (claimed.batch.id, claimed.fence), puts)):
            raise LeaseLost(f"batch {claimed.batch.id} is another orchestrator's by now")

    def _write(self, operation: Operation[T], topic: str = "") -> "asyncio.Future[T]":
        return self._database.write(operation, topic)


def _unnamed(item: NewItem) -> NewItem:
    """What is kept of an item beside its name."""
    return NewItem(inputs=item.inputs, failure=item.failure if item.HasField("failure") else None)


def _misfit(batch_id: str, index: int, failure: Failure) -> tuple[str, int, str, int, float, bytes]:
    outcome = BatchItem(failure=failure).SerializeToString()
    return batch_id, index, "", RUN_STATE_FAILED, time.time(), outcome
