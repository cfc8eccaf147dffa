"""Batches: what is asked of the orchestrator about them."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import grpc

from gateway.auth.audit import Audit
from gateway.limits.quotas import Quotas
from gateway.pipelines.batch_feed import BatchFeed
from gateway.runs import STREAM_SECONDS
from gateway.service_calls import CALL_SECONDS, absent, ask, told
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.batch_pb2 import BATCH_ITEM_VIEW_BASIC, Batch, BatchItem, BatchSpec
from protos.hugginggpt.v1.run_pb2 import RunState
from services.common import call_context, upload_acks
from services.common.errors import Unavailable

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

FIRST_PAGE, LARGEST_PAGE, PAGE_BYTES = 4, 500, 1024 * 1024
"""Items read at a time: at first, at most, and about how many bytes of them."""

KEPT_SECONDS = 60.0
"""How long the orchestrator may take for the spec, for a page of items, or to begin once it has them all."""

Taken = Callable[[], Awaitable[None]]


async def _nobody() -> None:
    """Nobody waits for the spec to be taken."""


class Batches:
    """The caller's batches.

    Every method raises the ServiceError the orchestrator raised, or Unavailable if it did not answer.

    Args:
        stub: the orchestrator's.
        quotas: says how many items the caller may have under way.
        audit: is told of what is removed.
    """

    def __init__(self, stub: "OrchestratorServiceAsyncStub", quotas: Quotas, audit: Audit) -> None:
        self._stub = stub
        self._quotas = quotas
        self._audit = audit
        self._feeds: WeakSet[BatchFeed] = WeakSet()
        self._stopped = False

    async def start(self, spec: BatchSpec, pages: AsyncIterable[pb.NewItems], taken: Taken = _nobody) -> Batch:
        """Has a batch kept with all its items; one whose pages break off is not.

        Args:
            spec: what to run.
            pages: its items; they are not read before the spec is taken.
            taken: called once it is.

        Raises:
            ServiceError: also what the pages raise; Overloaded, TOKENS_QUOTA.
        """
        spec.max_at_once = await self._quotas.items(spec.max_at_once)
        call: Any = self._stub.CreateBatch(timeout=STREAM_SECONDS, metadata=call_context.metadata())
        try:
            return await _told_all(call, spec, pages, taken)
        except grpc.aio.AioRpcError as error:
            raise told(error) from error
        except TimeoutError:
            raise absent() from None
        finally:
            call.cancel()

    async def get(self, batch_id: str) -> Batch:
        return await ask(self._stub.GetBatch, pb.GetBatchRequest(batch_id=batch_id))

    async def list(self, request: pb.ListBatchesRequest) -> pb.ListBatchesResponse:
        return await ask(self._stub.ListBatches, request)

    async def items(self, request: pb.ListBatchItemsRequest) -> pb.ListBatchItemsResponse:
        return await ask(self._stub.ListBatchItems, request)

    async def every(self, batch_id: str, states: "Collection[RunState.ValueType]" = ()) -> AsyncIterator[BatchItem]:
        """All items without their inputs in the order of the input, or those in some states.

        About a megabyte of them is in memory.
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
        """A batch as it stands and whenever that changes, to its end."""
        await self.get(batch_id)
        request, metadata = pb.WatchBatchRequest(batch_id=batch_id), call_context.metadata()
        feed = BatchFeed(lambda: self._stub.WatchBatch(request, timeout=STREAM_SECONDS, metadata=metadata))
        self._feeds.add(feed)
        if self._stopped:
            feed.stop()
        return feed

    async def cancel(self, batch_id: str) -> None:
        await ask(self._stub.CancelBatch, pb.CancelBatchRequest(batch_id=batch_id))

    async def resume(self, batch_id: str, *, failed_only: bool = False) -> Batch:
        """Lets the items run that have not, or only those that have failed.

        Raises:
            ServiceError: also Overloaded, TOKENS_QUOTA.
        """
        await self._quotas.items(0)
        return await ask(self._stub.ResumeBatch, pb.ResumeBatchRequest(batch_id=batch_id, failed_only=failed_only))

    async def delete(self, batch_id: str) -> None:
        """Removes an ended batch with its runs."""
        await self._audit.record("batch.delete", batch_id)
        await ask(self._stub.DeleteBatch, pb.DeleteBatchRequest(batch_id=batch_id))

    def stop(self) -> None:
        """Ends all streams, and those to come, so that their readers go elsewhere."""
        self._stopped = True
        for feed in tuple(self._feeds):
            feed.stop()


def _next_size(page: pb.ListBatchItemsResponse) -> int:
    each = page.ByteSize() / len(page.items)
    return max(1, min(LARGEST_PAGE, int(PAGE_BYTES / each)))


async def _told_all(call: Any, spec: BatchSpec, pages: AsyncIterable[pb.NewItems], taken: Taken) -> Batch:
    async with asyncio.timeout(CALL_SECONDS):
        await call.write(pb.CreateBatchRequest(spec=spec))
    async with asyncio.timeout(KEPT_SECONDS):
        goes_on = await upload_acks.wait_for_ack(call)
    if goes_on:
        await taken()
        total = 0
        async for page in pages:
            await _write(call, pb.CreateBatchRequest(items=page))
            total += len(page.items)
        await _write(call, pb.CreateBatchRequest(end=pb.BatchEnd(items=total)))
        await call.done_writing()
    async with asyncio.timeout(KEPT_SECONDS):
        batch: Batch = await call
    return batch


async def _write(call: Any, part: pb.CreateBatchRequest) -> None:
    try:
        async with asyncio.timeout(KEPT_SECONDS):
            await call.write(part)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
        raise Unavailable(
            "the orchestrator stopped taking in items", remedy="send the batch again; nothing of it is kept"
        ) from error
