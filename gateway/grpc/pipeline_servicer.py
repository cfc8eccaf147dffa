"""Pipeline and batch methods of the gRPC GatewayService."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from gateway.core.batch_items import ItemPreparer, SubmittedItem, paginate
from gateway.core.batches import BatchService
from gateway.core.pipelines import PipelineService
from gateway.core.validation import RequestValidator
from gateway.grpc.interceptors import CallerContext
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1 import gateway_pb2_grpc as rpc
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchSpec
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline, PipelineRef
from services.common import upload_acks
from services.common.errors import InvalidRequest


class PipelineCalls(rpc.GatewayServiceServicer):
    """Pipeline methods."""

    _as_caller: CallerContext
    _pipelines: PipelineService

    async def SavePipeline(self, request: pb.SavePipelineRequest, context: Any) -> Pipeline:
        with self._as_caller(context):
            return (await self._pipelines.save(request)).pipeline

    async def GetPipeline(self, request: pb.GetPipelineRequest, context: Any) -> Pipeline:
        with self._as_caller(context):
            return await self._pipelines.get(PipelineRef(name=request.name, version=request.version))

    async def ListPipelines(self, request: pb.ListPipelinesRequest, context: Any) -> pb.ListPipelinesResponse:
        with self._as_caller(context):
            return await self._pipelines.list(request)

    async def DeletePipeline(self, request: pb.DeletePipelineRequest, context: Any) -> pb.DeletePipelineResponse:
        with self._as_caller(context):
            await self._pipelines.delete(PipelineRef(name=request.name, version=request.version))
        return pb.DeletePipelineResponse()


class BatchCalls(rpc.GatewayServiceServicer):
    """Batch methods."""

    _as_caller: CallerContext
    _validator: RequestValidator
    _batches: BatchService
    _items: ItemPreparer

    async def CreateBatch(self, request_iterator: AsyncIterator[pb.CreateBatchRequest], context: Any) -> Batch:
        spec = await _spec(request_iterator)
        with self._as_caller(context, spec.policy):
            admitted = await self._validator.validate_batch(spec)
            pages = self._items.prepared_pages(paginate(_sent(request_iterator)))
            return await self._batches.start(admitted, pages, partial(upload_acks.send_ack, context))

    async def GetBatch(self, request: pb.GetBatchRequest, context: Any) -> Batch:
        with self._as_caller(context):
            return await self._batches.get(request.batch_id)

    async def ListBatches(self, request: pb.ListBatchesRequest, context: Any) -> pb.ListBatchesResponse:
        with self._as_caller(context):
            return await self._batches.list(request)

    async def ListBatchItems(self, request: pb.ListBatchItemsRequest, context: Any) -> pb.ListBatchItemsResponse:
        with self._as_caller(context):
            return await self._batches.items(request)

    async def CancelBatch(self, request: pb.CancelBatchRequest, context: Any) -> pb.CancelBatchResponse:
        with self._as_caller(context):
            await self._batches.cancel(request.batch_id)
        return pb.CancelBatchResponse()

    async def ResumeBatch(self, request: pb.ResumeBatchRequest, context: Any) -> Batch:
        with self._as_caller(context):
            return await self._batches.resume(request.batch_id, failed_only=request.failed_only)

    async def WatchBatch(self, request: pb.WatchBatchRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        with self._as_caller(context):
            feed = await self._batches.watch(request.batch_id)
            try:
                while batch := await feed.read():
                    await context.write(batch)
            finally:
                feed.stop()

    async def DeleteBatch(self, request: pb.DeleteBatchRequest, context: Any) -> pb.DeleteBatchResponse:
        with self._as_caller(context):
            await self._batches.delete(request.batch_id)
        return pb.DeleteBatchResponse()


async def _spec(requests: AsyncIterator[pb.CreateBatchRequest]) -> BatchSpec:
    first = await anext(requests, None)
    if first is None or not first.HasField("spec"):
        raise InvalidRequest("the first message has no spec", port="spec", remedy="send the spec, then the items")
    if first.spec.policy not in DataPolicy.values():
        raise InvalidRequest(
            "policy has an unknown value", remedy="use a value of the enum in the proto", port="policy"
        )
    return first.spec


async def _sent(requests: AsyncIterator[pb.CreateBatchRequest]) -> AsyncIterator[tuple[SubmittedItem, int]]:
    index = 0
    async for items in upload_acks.read_items(requests):
        for item in items:
            yield SubmittedItem(f"items[{index}]", item), item.ByteSize()
            index += 1
