"""gRPC GatewayService: the operations of the HTTP API."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from structlog.contextvars import bind_contextvars

from gateway.auth.identity import CallerFactory
from gateway.core.batch_items import ItemPreparer
from gateway.core.batches import BatchService
from gateway.core.catalog import Catalog
from gateway.core.pipelines import PipelineService
from gateway.core.run_stream import RunEventFeed
from gateway.core.runs import RunService
from gateway.core.uploads import Allowance, store_file
from gateway.core.validation import RequestValidator
from gateway.grpc.interceptors import CallerContext
from gateway.grpc.pipeline_servicer import BatchCalls, PipelineCalls
from gateway.provenance import run_account
from gateway.provenance.record import record
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.gateway_pb2 import GetRunRecordRequest
from protos.hugginggpt.v1.record_pb2 import RunRecord
from protos.hugginggpt.v1.run_pb2 import Run
from services.common.artifacts import ArtifactStore
from services.common.call_context import current
from services.common.errors import InvalidRequest

CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class PipelineServices:
    """Operations on pipelines and batches."""

    pipelines: PipelineService
    batches: BatchService
    items: ItemPreparer


class GatewayServicer(PipelineCalls, BatchCalls):
    """Serves calls for the authenticated caller; caller metadata sent by clients is ignored."""

    def __init__(
        self,
        runs: RunService,
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
        if request.policy not in DataPolicy.values():
            raise InvalidRequest(
                "policy has an unknown value", remedy="use a value of the enum in the proto", port="policy"
            )
        with self._as_caller(context, request.policy):
            allowance = Allowance(self._files_bytes)
            files = [await self._store_file(file.name, _pieces(file.content), allowance) for file in request.files]
            spec = await self._validator.validate_run(request.spec, files)
            await _relay(await self._runs.start(spec), context)

    async def WatchRun(self, request: gateway_pb2.WatchRunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        if request.after_sequence < 0:
            raise InvalidRequest("after_sequence is negative", remedy="send 0 for all events", port="after_sequence")
        with self._as_caller(context):
            await _relay(await self._runs.watch(request.run_id, request.after_sequence), context)

    async def GetRun(self, request: gateway_pb2.GetRunRequest, context: Any) -> Run:
        with self._as_caller(context):
            return await self._runs.get(request.run_id)

    async def ListRuns(self, request: gateway_pb2.ListRunsRequest, context: Any) -> gateway_pb2.ListRunsResponse:
        with self._as_caller(context):
            return await self._runs.list(request)

    async def CancelRun(self, request: gateway_pb2.CancelRunRequest, context: Any) -> gateway_pb2.CancelRunResponse:
        with self._as_caller(context):
            await self._runs.cancel(request.run_id)
        return gateway_pb2.CancelRunResponse()

    async def ApproveRun(self, request: gateway_pb2.ApproveRunRequest, context: Any) -> gateway_pb2.ApproveRunResponse:
        with self._as_caller(context):
            await self._validator.normalize_plan(request.plan)
            await self._runs.approve(request.run_id, request.plan if request.HasField("plan") else None)
        return gateway_pb2.ApproveRunResponse()

    async def DeleteRun(self, request: gateway_pb2.DeleteRunRequest, context: Any) -> gateway_pb2.DeleteRunResponse:
        with self._as_caller(context):
            await self._runs.delete(request.run_id)
        return gateway_pb2.DeleteRunResponse()

    async def GetRunRecord(self, request: GetRunRecordRequest, context: Any) -> RunRecord:
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

    async def ListTasks(self, request: gateway_pb2.ListTasksRequest, context: Any) -> gateway_pb2.ListTasksResponse:
        with self._as_caller(context):
            return await self._catalog.tasks(request)

    async def ListModels(self, request: gateway_pb2.ListModelsRequest, context: Any) -> gateway_pb2.ListModelsResponse:
        with self._as_caller(context):
            return await self._catalog.models(request)

    async def _store_file(self, name: str, chunks: AsyncIterator[bytes], allowance: Allowance) -> Artifact:
        return await store_file(self._store, current().tenant, name, chunks, allowance)


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
