"""RPCs of OrchestratorService for batches."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.internal.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.batch_pb2 import BATCH_ITEM_VIEW_BASIC, Batch
from services.common import upload_acks
from services.orchestrator.batches.service import BatchService
from services.orchestrator.journal.ended_batches import EndedBatches
from services.orchestrator.paging import (
    page_size,
    page_token,
    parse_index_token,
    parse_page_token,
    states_filter,
    to_seconds,
)


class BatchServicer(rpc.OrchestratorServiceServicer):
    """Implements the RPCs of batches."""

    _batches: BatchService
    _ended_batches: EndedBatches

    async def CreateBatch(self, request_iterator: AsyncIterator[gateway_pb2.CreateBatchRequest], context: Any) -> Batch:
        return await self._batches.start(request_iterator, partial(upload_acks.send_ack, context))

    async def GetBatch(self, request: gateway_pb2.GetBatchRequest, context: Any) -> Batch:
        return await self._batches.get(request.batch_id)

    async def ListBatches(
        self, request: gateway_pb2.ListBatchesRequest, context: Any
    ) -> gateway_pb2.ListBatchesResponse:
        size, states = page_size(request.page_size), states_filter(request.states)
        found = await self._batches.list(size, parse_page_token(request.page_token), states)
        following = page_token(found.rows[-1][0].created, found.rows[-1][0].id) if found.more else ""
        return gateway_pb2.ListBatchesResponse(batches=[batch for _, batch in found.rows], next_page_token=following)

    async def ListBatchItems(
        self, request: gateway_pb2.ListBatchItemsRequest, context: Any
    ) -> gateway_pb2.ListBatchItemsResponse:
        size, states = page_size(request.page_size), states_filter(request.states)
        inputs = request.view != BATCH_ITEM_VIEW_BASIC
        after = max(request.after_index, parse_index_token(request.page_token))
        found = await self._batches.items(request.batch_id, after, size, states, inputs=inputs)
        return gateway_pb2.ListBatchItemsResponse(
            items=found.rows, next_page_token=str(found.rows[-1].index) if found.more else ""
        )

    async def CancelBatch(
        self, request: gateway_pb2.CancelBatchRequest, context: Any
    ) -> gateway_pb2.CancelBatchResponse:
        await self._batches.cancel(request.batch_id)
        return gateway_pb2.CancelBatchResponse()

    async def ResumeBatch(self, request: gateway_pb2.ResumeBatchRequest, context: Any) -> Batch:
        return await self._batches.resume(request.batch_id, failed_only=request.failed_only)

    async def WatchBatch(self, request: gateway_pb2.WatchBatchRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        async with aclosing(self._batches.watch(request.batch_id)) as shown:
            async for batch in shown:
                await context.write(batch)

    async def DeleteBatch(
        self, request: gateway_pb2.DeleteBatchRequest, context: Any
    ) -> gateway_pb2.DeleteBatchResponse:
        await self._batches.delete(request.batch_id)
        return gateway_pb2.DeleteBatchResponse()

    async def ListEndedBatches(
        self, request: orchestrator_pb2.ListEndedBatchesRequest, context: Any
    ) -> orchestrator_pb2.ListEndedBatchesResponse:
        size, since = page_size(request.page_size), to_seconds(request.ended_after, "ended_after")
        found = await self._ended_batches.since(since, parse_page_token(request.page_token) or (0.0, ""), size + 1)
        following = page_token(found[size - 1][0], found[size - 1][1].batch_id) if len(found) > size else ""
        return orchestrator_pb2.ListEndedBatchesResponse(
            batches=[batch for _, batch in found[:size]], next_page_token=following
        )
