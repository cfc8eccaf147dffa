"""Batches as callers know them: started, looked at, watched, cancelled, resumed, removed."""

import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection
from datetime import timedelta
from typing import Self

from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem
from protos.hugginggpt.v1.gateway_pb2 import CreateBatchRequest
from protos.hugginggpt.v1.run_pb2 import RunState
from services.common import call_context
from services.orchestrator.batches.executor import Driver
from services.orchestrator.batches.ingest import Reception
from services.orchestrator.batches.leases import Tenure
from services.orchestrator.batches.runner import Means
from services.orchestrator.batches.watch import Looks, planless
from services.orchestrator.journal.batch_removal import BatchRemoval
from services.orchestrator.journal.batch_rows import BatchRow, Counts, counted
from services.orchestrator.journal.pages import Page
from services.orchestrator.paging import timestamp

RATE_SECONDS = 30.0
"""Over which the rate is measured, but no longer than the batch has been driven without a pause."""


class Batches:
    """The caller's batches, and those that this process drives.

    Args:
        means: by which they are driven.
        removal: removes them.
        lease_seconds: the journal's.
    """

    def __init__(self, means: Means, removal: BatchRemoval, lease_seconds: float) -> None:
        self._kept = means.kept
        self._removal = removal
        self._reception = Reception(means.kept, removal, means.pipelines)
        self._tenure = Tenure(means.kept, Driver(means).drive, means.runs.bells, lease_seconds, means.waiting)
        self._bells = means.runs.bells
        self._looks = Looks(self._seen)

    async def __aenter__(self) -> Self:
        await self._tenure.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hand_over()

    async def hand_over(self) -> None:
        """Lets go of all batches, for other orchestrators to take at once; who watches is sent to them."""
        self._looks.close()
        await self._tenure.hand_over()

    async def start(self, parts: AsyncIterable[CreateBatchRequest], taken: Callable[[], Awaitable[None]]) -> Batch:
        """Keeps a batch and lets it run.

        Args:
            parts: its spec, then its items.
            taken: called once the spec is taken, before the items are read.

        Raises:
            ServiceError: what Reception.received says.
        """
        batch_id = await self._reception.received(parts, taken)
        self._tenure.look()
        return await self.get(batch_id)

    async def get(self, batch_id: str) -> Batch:
        """A batch as it stands.

        Raises:
            NotFound: BATCH.
        """
        return await self._seen(batch_id, call_context.current().tenant)

    async def _seen(self, batch_id: str, tenant: str) -> Batch:
        row = await self._kept.row(batch_id, tenant)
        now = time.time()
        since = max(now - RATE_SECONDS, row.taken_up or row.created)
        counts = await self._kept.counts(batch_id, since)
        return _paced(_shown(row, counts), counts, now - since, row)

    async def listed(
        self, limit: int, before: tuple[float, str] | None, states: "Collection[RunState.ValueType]"
    ) -> Page[tuple[BatchRow, Batch]]:
        """The caller's batches without their plans, newest first, older than a (created, id); of large ones fewer."""
        found = await self._kept.rows(call_context.current().tenant, limit=limit, before=before, states=states)
        shown = [(row, planless(_shown(row, await self._kept.counts(row.id, 0.0)))) for row in found.rows]
        return Page(shown, found.more)

    async def items(
        self, batch_id: str, after: int, limit: int, states: "Collection[RunState.ValueType]", *, inputs: bool
    ) -> Page[BatchItem]:
        """Items behind an index, in the order of the input; of large ones fewer, one at least.

        Raises:
            NotFound: BATCH.
        """
        await self._kept.row(batch_id, call_context.current().tenant)
        return await self._kept.items(batch_id, after, limit, states, inputs=inputs)

    async def watch(self, batch_id: str) -> AsyncGenerator[Batch]:
        """A batch whenever it has changed, to its end; with its plan only where that is new.

        Raises:
            NotFound: BATCH.
            Unavailable: this process stops; watch again.
        """
        tenant, shown = call_context.current().tenant, Batch()
        while True:
            batch = await (self._looks.next(batch_id, tenant) if shown.batch_id else self.get(batch_id))
            if batch.HasField("pipeline") and not shown.HasField("pipeline"):
                batch = await self.get(batch_id)
                yield batch
            elif batch != shown:
                yield batch
            if batch.HasField("end_time"):
                return
            shown = planless(batch)

    async def cancel(self, batch_id: str) -> None:
        """Keeps the wish that a batch stops.

        Raises:
            NotFound: BATCH.
        """
        row = await self._kept.row(batch_id, call_context.current().tenant)
        if not row.over:
            await self._kept.cancel(batch_id)
            self._bells.ring((batch_id,))

    async def resume(self, batch_id: str, *, failed_only: bool) -> Batch:
        """Lets the items run that have not, or only those that have failed.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended, and failed ones are wanted or it is just being cancelled.
        """
        await self._kept.resume(batch_id, call_context.current().tenant, failed_only=failed_only)
        self._tenure.look()
        return await self.get(batch_id)

    async def delete(self, batch_id: str) -> None:
        """Removes an ended batch.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended.
        """
        await self._removal.delete(batch_id, call_context.current().tenant)


def _shown(row: BatchRow, counts: Counts) -> Batch:
    batch = Batch(
        batch_id=row.id,
        state=row.state,
        spec=row.spec,
        pipeline=row.pipeline if row.planned else None,
        counts=counted(row.total, counts),
        failure=row.failure if row.failure.reason else None,
        waiting_for=row.waiting_for,
    )
    batch.create_time.CopyFrom(timestamp(row.created))
    if row.over:
        batch.end_time.CopyFrom(timestamp(row.ended))
    return batch


def _paced(batch: Batch, counts: Counts, seconds: float, row: BatchRow) -> Batch:
    """With rate and remaining time, while it is under way."""
    if counts.late and not row.over and seconds > 0:
        batch.items_per_second = counts.late / seconds
        left = batch.counts.waiting + batch.counts.running
        batch.remaining.FromTimedelta(timedelta(seconds=left / batch.items_per_second))
    return batch
