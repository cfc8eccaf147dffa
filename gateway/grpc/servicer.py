"""gRPC GatewayService: the operations of the HTTP API."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from structlog.contextvars import bind_contextvars

from gateway.auth.identity import CallerFactory
from gateway.core.batch_items import ItemPreparer, SubmittedItem, paginate
from gateway.core.batches import BatchOperations
from gateway.core.catalog import Catalog
from gateway.core.pipelines import PipelineOperations
from gateway.core.run_stream import RunEventFeed
from gateway.core.runs import RunOperations
from gateway.core.uploads import Allowance, store_file
from gateway.core.validation import RequestValidator
from gateway.grpc.interceptors import CallerContext
from gateway.provenance import run_account
from gateway.provenance.record import record
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1 import gateway_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchSpec
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline, PipelineRef
from protos.hugginggpt.v1.record_pb2 import RunRecord
from protos.hugginggpt.v1.run_pb2 import Run
from services.common import upload_acks
from services.common.artifacts import ArtifactStore
from services.common.call_context import current
from services.common.errors import InvalidRequest

CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class PipelineServices:
    """Operations on pipelines and batches."""

    pipelines: PipelineOperations
    batches: BatchOperations
    items: ItemPreparer


class GatewayServicer(rpc.GatewayServiceServicer):
    """Serves calls for the authenticated caller; caller metadata sent by clients is ignored."""

    def __init__(
        self,
        runs: RunOperations,
        services: PipelineServices,
        validator: RequestValidator,
        catalog: Catalog,
        *,
        store: ArtifactStore,
        callers: CallerFactory,
        files_bytes: int,
        upload_bytes: int,
    ) -> None:
        self._runs = runs
        self._pipelines, self._batches, self._items = services.pipelines, services.batches, services.items
        self._validator = validator
        self._catalog = catalog
        self._store = store
        self._as_caller = CallerContext(callers)
        self._files_bytes = files_bytes
        self._upload_bytes = upload_bytes

    async def CreateRun(self, request: pb.CreateRunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        _check_policy(request.policy)
        with self._as_caller(context, request.policy):
            allowance = Allowance(self._files_bytes)
            files = [await self._store_file(file.name, _pieces(file.content), allowance) for file in request.files]
            spec = await self._validator.validate_run(request.spec, files)
            await _relay(await self._runs.start(spec), context)

    async def WatchRun(self, request: pb.WatchRunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        if request.after_sequence < 0:
            raise InvalidRequest("after_sequence is negative", remedy="send 0 for all events", port="after_sequence")
        with self._as_caller(context):
            await _relay(await self._runs.watch(request.run_id, request.after_sequence), context)

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> Run:
        with self._as_caller(context):
            return await self._runs.get(request.run_id)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        with self._as_caller(context):
            return await self._runs.list(request)

    async def CancelRun(self, request: pb.CancelRunRequest, context: Any) -> pb.CancelRunResponse:
        with self._as_caller(context):
            await self._runs.cancel(request.run_id)
        return pb.CancelRunResponse()

    async def ApproveRun(self, request: pb.ApproveRunRequest, context: Any) -> pb.ApproveRunResponse:
        with self._as_caller(context):
            await self._validator.normalize_plan(request.plan)
            await self._runs.approve(request.run_id, request.plan if request.HasField("plan") else None)
        return pb.ApproveRunResponse()

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Any) -> pb.DeleteRunResponse:
        with self._as_caller(context):
            await self._runs.delete(request.run_id)
        return pb.DeleteRunResponse()

    async def GetRunRecord(self, request: pb.GetRunRecordRequest, context: Any) -> RunRecord:
        with self._as_caller(context):
            return record(await run_account.read(self._runs, request.run_id))

    async def UploadArtifact(self, requests: AsyncIterator[pb.UploadArtifactRequest], context: Any) -> Artifact:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("part") != "name":
            raise InvalidRequest("the first message of an upload has no name", remedy="send the name, then the chunks")
        with self._as_caller(context):
            return await self._store_file(first.name, _chunks(requests), Allowance(self._upload_bytes))

    async def DownloadArtifact(self, request: pb.DownloadArtifactRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        with self._as_caller(context):
            tenant = current().tenant
            known = await self._store.head(tenant, request.sha256)
            await context.write(pb.DownloadArtifactResponse(artifact=known))
            async for piece in self._store.stream(tenant, request.sha256):
                async for chunk in _pieces(piece):
                    await context.write(pb.DownloadArtifactResponse(chunk=chunk))

    async def ListTasks(self, request: pb.ListTasksRequest, context: Any) -> pb.ListTasksResponse:
        with self._as_caller(context):
            return await self._catalog.tasks(request)

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        with self._as_caller(context):
            return await self._catalog.models(request)

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

    async def CreateBatch(self, request_iterator: AsyncIterator[pb.CreateBatchRequest], context: Any) -> Batch:
        spec = await _batch_spec(request_iterator)
        with self._as_caller(context, spec.policy):
            admitted = await self._validator.validate_batch(spec)
            pages = self._items.prepared_pages(paginate(_submitted_items(request_iterator)))
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

    async def _store_file(self, name: str, chunks: AsyncIterator[bytes], allowance: Allowance) -> Artifact:
        return await store_file(self._store, current().tenant, name, chunks, allowance)


def _check_policy(policy: DataPolicy.ValueType) -> None:
    if policy not in DataPolicy.values():
        raise InvalidRequest(
            "policy has an unknown value", remedy="use a value of the enum in the proto", port="policy"
        )


async def _relay(feed: RunEventFeed, context: Any) -> None:
    try:
        while (event := await feed.read()) is not None:
            await context.write(event)
    finally:
        bind_contextvars(run_id=feed.run_id)  # for the access log
        feed.stop()


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), CHUNK_BYTES):
        yield content[start : start + CHUNK_BYTES]


async def _chunks(requests: AsyncIterator[pb.UploadArtifactRequest]) -> AsyncIterator[bytes]:
    async for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise InvalidRequest("the upload has a second name", remedy="send the name once, then only chunks")
        yield request.chunk


async def _batch_spec(requests: AsyncIterator[pb.CreateBatchRequest]) -> BatchSpec:
    first = await anext(requests, None)
    if first is None or not first.HasField("spec"):
        raise InvalidRequest("the first message has no spec", port="spec", remedy="send the spec, then the items")
    _check_policy(first.spec.policy)
    return first.spec


async def _submitted_items(requests: AsyncIterator[pb.CreateBatchRequest]) -> AsyncIterator[tuple[SubmittedItem, int]]:
    index = 0
    async for items in upload_acks.read_items(requests):
        for item in items:
            yield SubmittedItem(f"items[{index}]", item), item.ByteSize()
            index += 1
