"""RPCs of OrchestratorService for pipelines."""

from typing import Any

from protos.hugginggpt.internal.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline, PipelineRef
from services.common.errors import InvalidRequest
from services.orchestrator.paging import page_size
from services.orchestrator.pipelines.service import PipelineService

_MAX_VERSION = 2**31


class PipelineServicer(rpc.OrchestratorServiceServicer):
    """Implements the RPCs of pipelines."""

    _pipelines: PipelineService

    async def SavePipeline(self, request: pb.SavePipelineRequest, context: Any) -> Pipeline:
        return await self._pipelines.save(request)

    async def GetPipeline(self, request: pb.GetPipelineRequest, context: Any) -> Pipeline:
        return await self._pipelines.get(PipelineRef(name=request.name, version=request.version))

    async def ListPipelines(self, request: pb.ListPipelinesRequest, context: Any) -> pb.ListPipelinesResponse:
        size, token = page_size(request.page_size), request.page_token
        if request.name:
            found = await self._pipelines.versions(request.name, _version(token), size)
        else:
            found = await self._pipelines.list(token, size)
        last = found.rows[-1] if found.more else Pipeline()
        following = str(last.version or "") if request.name else last.name
        return pb.ListPipelinesResponse(pipelines=found.rows, next_page_token=following)

    async def DeletePipeline(self, request: pb.DeletePipelineRequest, context: Any) -> pb.DeletePipelineResponse:
        await self._pipelines.delete(PipelineRef(name=request.name, version=request.version))
        return pb.DeletePipelineResponse()


def _version(token: str) -> int:
    if token and not (token.isascii() and token.isdigit() and int(token) <= _MAX_VERSION):
        raise InvalidRequest(
            "the page token is invalid", port="page_token", remedy="send next_page_token of the previous page unchanged"
        )
    return int(token or _MAX_VERSION)
