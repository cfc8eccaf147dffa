"""Operations on batches, carried out by the orchestrator."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import grpc

from gateway.auth.audit import Audit
from gateway.core.run_stream import BatchFeed
from gateway.core.runs import STREAM_SECONDS
from gateway.core.service_calls import CALL_TIMEOUT_SECONDS, call, service_error, unavailable
from gateway.limits.quotas import Quotas
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.batch_pb2 import BATCH_ITEM_VIEW_BASIC, Batch, BatchItem, BatchSpec
from protos.hugginggpt.v1.run_pb2 import RunState
from services.common import call_context, upload_acks
from services.common.errors import Unavailable

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

FIRST_PAGE, LARGEST_PAGE, PAGE_BYTES = 4, 500, 1024 * 1024
"""Items per page: the first page, the largest page, and the approximate bytes of a page."""

PAGE_TIMEOUT_SECONDS = 60.0
"""Timeout of the orchestrator for the spec, for each page of items, and for the start after the last page."""

OnAccepted = Callable[[], Awaitable[None]]


async def _ignore_acceptance() -> None:
    """Default callback of `start`; does nothing."""


class BatchOperations:
    """Batches of the caller's tenant.

    Every method raises the ServiceError the orchestrator raised, or Unavailable if it did not answer.

    Args:
        stub: stub of the orchestrator.
        quotas: limits the number of concurrent items.
        audit: records deletions.
    """

    def __init__(self, stub: "OrchestratorServiceAsyncStub", quotas: Quotas, audit: Audit) -> None:
        self._stub = stub
        self._quotas = quotas
        self._audit = audit
        self._feeds: WeakSet[BatchFeed] = WeakSet()
        self._stopped = False

    async def start(
        self, spec: BatchSpec, pages: AsyncIterable[pb.NewItems], on_accepted: OnAccepted = _ignore_acceptance
    ) -> Batch:
        """Stores a batch with all its items and starts it; stores nothing if reading the pages fails.

        Args:
            spec: what to run.
            pages: the items; read after the spec is accepted.
            on_accepted: called when the spec is accepted.

        Raises:
            ServiceError: also errors of reading the pages; Overloaded, TOKENS_QUOTA.
        """
        spec.max_at_once = await self._quotas.batch_concurrency(spec.max_at_once)
        stream: Any = self._stub.CreateBatch(timeout=STREAM_SECONDS, metadata=call_context.metadata())
        try:
            return await _send_batch(stream, spec, pages, on_accepted)
        except grpc.aio.AioRpcError as error:
            raise service_error(error) from error
        except TimeoutError:
            raise unavailable() from None
        finally:
            stream.cancel()

    async def get(self, batch_id: str) -> Batch:
        return await call(self._stub.GetBatch, pb.GetBatchRequest(batch_id=batch_id))

    async def list(self, request: pb.ListBatchesRequest) -> pb.ListBatchesResponse:
        return await call(self._stub.ListBatches, request)

    async def items(self, request: pb.ListBatchItemsRequest) -> pb.ListBatchItemsResponse:
        return await call(self._stub.ListBatchItems, request)

    async def every(self, batch_id: str, states: "Collection[RunState.ValueType]" = ()) -> AsyncIterator[BatchItem]:
        """Iterates over all items in input order without their inputs, optionally only those in some states.

        About one megabyte of items is in memory at a time.
        """
        request = pb.ListBatchItemsRequest(
            batch_id=batch_id, states=states, page_size=FIRST_PAGE, view=BATCH_ITEM_VIEW_BASIC
        )
        while True:
            page = await self.items(request)
            for item in page.items:
                yield item
            if not page.next_page_token:
                return
            request.page_token, request.page_size = page.next_page_token, _next_size(page)

    async def watch(self, batch_id: str) -> BatchFeed:
        """Returns the updates of a batch, from its current state to its end."""
        await self.get(batch_id)
        request, metadata = pb.WatchBatchRequest(batch_id=batch_id), call_context.metadata()
        feed = BatchFeed(lambda: self._stub.WatchBatch(request, timeout=STREAM_SECONDS, metadata=metadata))
        self._feeds.add(feed)
        if self._stopped:
            feed.stop()
        return feed

    async def cancel(self, batch_id: str) -> None:
        await call(self._stub.CancelBatch, pb.CancelBatchRequest(batch_id=batch_id))

    async def resume(self, batch_id: str, *, failed_only: bool = False) -> Batch:
        """Runs the items that have not run, or only the failed ones.

        Raises:
            ServiceError: also Overloaded, TOKENS_QUOTA.
        """
        await self._quotas.batch_concurrency(0)
        return await call(self._stub.ResumeBatch, pb.ResumeBatchRequest(batch_id=batch_id, failed_only=failed_only))

    async def delete(self, batch_id: str) -> None:
        """Deletes an ended batch with its runs."""
        await self._audit.record("batch.delete", batch_id)
        await call(self._stub.DeleteBatch, pb.DeleteBatchRequest(batch_id=batch_id))

    def stop(self) -> None:
        """Stops all current and future update streams, so that clients reconnect to another gateway."""
        self._stopped = True
        for feed in tuple(self._feeds):
            feed.stop()


def _next_size(page: pb.ListBatchItemsResponse) -> int:
    each = page.ByteSize() / len(page.items)
    return max(1, min(LARGEST_PAGE, int(PAGE_BYTES / each)))


async def _send_batch(
    stream: Any, spec: BatchSpec, pages: AsyncIterable[pb.NewItems], on_accepted: OnAccepted
) -> Batch:
    async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
        await stream.write(pb.CreateBatchRequest(spec=spec))
    async with asyncio.timeout(PAGE_TIMEOUT_SECONDS):
        wants_items = await upload_acks.wait_for_ack(stream)
    if wants_items:
        await on_accepted()
        total = 0
        async for page in pages:
            await _write(stream, pb.CreateBatchRequest(items=page))
            total += len(page.items)
        await _write(stream, pb.CreateBatchRequest(end=pb.BatchEnd(items=total)))
        await stream.done_writing()
    async with asyncio.timeout(PAGE_TIMEOUT_SECONDS):
        batch: Batch = await stream
    return batch


async def _write(stream: Any, part: pb.CreateBatchRequest) -> None:
    try:
        async with asyncio.timeout(PAGE_TIMEOUT_SECONDS):
            await stream.write(part)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
        raise Unavailable(
            "the orchestrator stopped receiving the batch's items",
            remedy="send the batch again; nothing of it is stored",
        ) from error
