"""Base of experts without the optional method InferBatch."""

from typing import Any

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from services.common.errors import Unimplemented


class InferOnlyExpert(rpc.ExpertServiceServicer):
    """Answers InferBatch as an expert of an earlier release."""

    async def InferBatch(self, request: pb.InferBatchRequest, context: Any) -> pb.InferBatchResponse:
        raise Unimplemented("the server does not implement this method")
