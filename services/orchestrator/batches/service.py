"""Batches of callers: starts, reads, watches, cancels, resumes and deletes them."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection
from contextvars import Context
from datetime import timedelta
from typing import Self

from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem
from protos.hugginggpt.v1.gateway_pb2 import CreateBatchRequest
from protos.hugginggpt.v1.run_pb2 import RunState
from services.common import call_context
from services.orchestrator.batches.ingest import BatchIngest
from services.orchestrator.batches.runner import BatchDependencies
from services.orchestrator.journal.batch_items import Counts, batch_counts
from services.orchestrator.journal.batches import BatchRow, Claimed
from services.orchestrator.journal.retention import BatchRemoval
from services.orchestrator.journal.store import Page, to_timestamp
from services.orchestrator.leases import LeaseManager, stopping_error

WATCH_SECONDS = 1.0
"""Interval of reads of a watched batch."""

RATE_SECONDS = 30.0
"""Period over which the rate is measured, at most the time since the batch was claimed."""


class BatchService:
    """The caller's batches, and those that this process executes.

    Args:
        shared: what the batches that run here share.
        leases: executes these batches.
        ingest: stores new batches.
        removal: deletes batches.
    """

    def __init__(
        self,
        shared: BatchDependencies,
        leases: LeaseManager[Claimed, Claimed],
        ingest: BatchIngest,
        removal: BatchRemoval,
    ) -> None:
        self._store = shared.store
        self._notifier = shared.notifier
        self._waiting_reasons = shared.waiting_reasons
        self._leases = leases
        self._ingest = ingest
        self._removal = removal
        self._poller = _BatchPoller(self._read)

    async def __aenter__(self) -> Self:
        await self._leases.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release_all()

    async def release_all(self) -> None:
        """Releases all batches, for other orchestrators to claim at once; watchers get an error and retry."""
        self._poller.close()
        await self._leases.release_all()

    async def start(
        self, parts: AsyncIterable[CreateBatchRequest], on_accepted: Callable[[], Awaitable[None]]
    ) -> Batch:
        """Stores a batch and starts it.

        Args:
            parts: the spec, then the items.
            on_accepted: called once the spec is valid, before the items are read.

        Raises:
            ServiceError: those of BatchIngest.receive().
        """
        batch_id = await self._ingest.receive(parts, on_accepted)
        self._leases.claim_now()
        return await self.get(batch_id)

    async def get(self, batch_id: str) -> Batch:
        """The state of a batch.

        Raises:
            NotFound: BATCH.
        """
        return await self._read(batch_id, call_context.current().tenant)

    async def _read(self, batch_id: str, tenant: str) -> Batch:
        row = await self._store.row(batch_id, tenant)
        now = time.time()
        since = max(now - RATE_SECONDS, row.claimed_at or row.created)
        counts = await self._store.counts(batch_id, since)
        return _with_rate(self._to_batch(row, counts), counts, now - since, row)

    async def list(
        self, limit: int, before: tuple[float, str] | None, states: "Collection[RunState.ValueType]"
    ) -> Page[tuple[BatchRow, Batch]]:
        """The caller's batches without their plans, newest first, created before a (created, ID); a page of them."""
        found = await self._store.rows(call_context.current().tenant, limit=limit, before=before, states=states)
        shown = [(row, _without_plan(self._to_batch(row, await self._store.counts(row.id, 0.0)))) for row in found.rows]
        return Page(shown, found.more)

    async def items(
        self, batch_id: str, after: int, limit: int, states: "Collection[RunState.ValueType]", *, inputs: bool
    ) -> Page[BatchItem]:
        """Items after an index, in their order; a page of them.

        Raises:
            NotFound: BATCH.
        """
        await self._store.row(batch_id, call_context.current().tenant)
        return await self._store.items(batch_id, after, limit, states, inputs=inputs)

    async def watch(self, batch_id: str) -> AsyncGenerator[Batch]:
        """Yields a batch whenever it has changed, to its end; with its plan only when that is new.

        Raises:
            NotFound: BATCH.
            Unavailable: this process stops; watch again.
        """
        tenant, shown = call_context.current().tenant, Batch()
        while True:
            batch = await (self._poller.next(batch_id, tenant) if shown.batch_id else self.get(batch_id))
            if batch.HasField("pipeline") and not shown.HasField("pipeline"):
                batch = await self.get(batch_id)
                yield batch
            elif batch != shown:
                yield batch
            if batch.HasField("end_time"):
                return
            shown = _without_plan(batch)

    async def cancel(self, batch_id: str) -> None:
        """Stores a command to cancel a batch.

        Raises:
            NotFound: BATCH.
        """
        row = await self._store.row(batch_id, call_context.current().tenant)
        if not row.has_ended:
            await self._store.cancel(batch_id)
            self._notifier.notify((batch_id,))

    async def resume(self, batch_id: str, *, failed_only: bool) -> Batch:
        """Runs the items that have not run, or only those that have failed.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended, and failed_only is set or it is being cancelled.
        """
        await self._store.resume(batch_id, call_context.current().tenant, failed_only=failed_only)
        self._leases.claim_now()
        return await self.get(batch_id)

    async def delete(self, batch_id: str) -> None:
        """Deletes an ended batch.

        Raises:
            NotFound: BATCH.
            FailedPrecondition: RUNNING, it has not ended.
        """
        await self._removal.delete(batch_id, call_context.current().tenant)

    def _to_batch(self, row: BatchRow, counts: Counts) -> Batch:
        waiting_for = "" if row.has_ended else self._waiting_reasons.get(row.id, row.waiting_for)
        batch = Batch(
            batch_id=row.id,
            state=row.state,
            spec=row.spec,
            pipeline=row.pipeline if row.is_planned else None,
            counts=batch_counts(row.total, counts),
            failure=row.failure if row.failure.reason else None,
            waiting_for=waiting_for,
        )
        batch.create_time.CopyFrom(to_timestamp(row.created))
        if row.has_ended:
            batch.end_time.CopyFrom(to_timestamp(row.ended))
        return batch


class _BatchPoller:
    """Reads shared by all watchers of a batch.

    Args:
        read: reads the state of a batch, by its ID and tenant.
    """

    def __init__(self, read: Callable[[str, str], Awaitable[Batch]]) -> None:
        self._read = read
        self._pending: dict[tuple[str, str], asyncio.Task[Batch]] = {}
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Fails all pending and later reads."""
        self._closed.set()

    async def next(self, batch_id: str, tenant: str) -> Batch:
        """The state of a batch at the next read, without its plan; callers must not change it.

        Raises:
            ServiceError: of the read; Unavailable after close().
        """
        key = batch_id, tenant
        if key not in self._pending:
            self._pending[key] = asyncio.create_task(self._read_later(*key), name=f"read-{batch_id}", context=Context())
            self._pending[key].add_done_callback(_ignore_error)
        return await asyncio.shield(self._pending[key])

    async def _read_later(self, batch_id: str, tenant: str) -> Batch:
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                await self._closed.wait()
        except TimeoutError:
            pass
        del self._pending[batch_id, tenant]  # later watchers wait for the read after this one
        if self._closed.is_set():
            raise stopping_error()
        return _without_plan(await self._read(batch_id, tenant))


def _without_plan(batch: Batch) -> Batch:
    """Removes the plan from a batch; returns the batch."""
    for field in ("pipeline", "spec"):
        if batch.HasField(field):
            getattr(batch, field).ClearField("plan")
    return batch


def _with_rate(batch: Batch, counts: Counts, seconds: float, row: BatchRow) -> Batch:
    """Adds rate and remaining time while the batch has not ended."""
    if counts.recent and not row.has_ended and seconds > 0:
        batch.items_per_second = counts.recent / seconds
        left = batch.counts.waiting + batch.counts.running
        batch.remaining.FromTimedelta(timedelta(seconds=left / batch.items_per_second))
    return batch


def _ignore_error(reading: "asyncio.Task[Batch]") -> None:
    """Marks the error as retrieved, for a read without watchers."""
    if not reading.cancelled():
        reading.exception()
