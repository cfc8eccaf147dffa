"""Base of fake orchestrators without pipelines and batches."""

from collections.abc import AsyncIterator
from typing import Any

from protos.hugginggpt.internal.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.v1 import batch_pb2, pipeline_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from services.common.errors import Unimplemented


class NoPipelines(rpc.OrchestratorServiceServicer):
    """Rejects all calls for pipelines and batches; fakes override the methods that they support."""

    async def SavePipeline(self, request: pb.SavePipelineRequest, context: Any) -> pipeline_pb2.Pipeline:
        raise _unimplemented()

    async def GetPipeline(self, request: pb.GetPipelineRequest, context: Any) -> pipeline_pb2.Pipeline:
        raise _unimplemented()

    async def ListPipelines(self, request: pb.ListPipelinesRequest, context: Any) -> pb.ListPipelinesResponse:
        raise _unimplemented()

    async def DeletePipeline(self, request: pb.DeletePipelineRequest, context: Any) -> pb.DeletePipelineResponse:
        raise _unimplemented()

    async def CreateBatch(
        self, request_iterator: AsyncIterator[pb.CreateBatchRequest], context: Any
    ) -> batch_pb2.Batch:
        raise _unimplemented()

    async def GetBatch(self, request: pb.GetBatchRequest, context: Any) -> batch_pb2.Batch:
        raise _unimplemented()

    async def ListBatches(self, request: pb.ListBatchesRequest, context: Any) -> pb.ListBatchesResponse:
        raise _unimplemented()

    async def ListBatchItems(self, request: pb.ListBatchItemsRequest, context: Any) -> pb.ListBatchItemsResponse:
        raise _unimplemented()

    async def CancelBatch(self, request: pb.CancelBatchRequest, context: Any) -> pb.CancelBatchResponse:
        raise _unimplemented()

    async def ResumeBatch(self, request: pb.ResumeBatchRequest, context: Any) -> batch_pb2.Batch:
        raise _unimplemented()

    async def WatchBatch(self, request: pb.WatchBatchRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        raise _unimplemented()

    async def DeleteBatch(self, request: pb.DeleteBatchRequest, context: Any) -> pb.DeleteBatchResponse:
        raise _unimplemented()


def _unimplemented() -> Unimplemented:
    return Unimplemented("this scripted orchestrator has no pipelines and batches")
