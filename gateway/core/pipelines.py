"""Operations on pipelines, carried out by the orchestrator."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.auth.audit import Audit
from gateway.core.service_calls import call
from gateway.core.validation import RequestValidator
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DataPolicy
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline, PipelineRef
from services.common.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

DESCRIPTION_CHARACTERS = 10_000


@dataclass(frozen=True)
class Saved:
    """Result of saving a pipeline."""

    pipeline: Pipeline
    new: bool
    """Whether a new version was created."""


class PipelineOperations:
    """Pipelines of the caller's tenant.

    Every method raises the ServiceError the orchestrator raised, or Unavailable if it did not answer.

    Args:
        stub: stub of the orchestrator.
        validator: validates plans.
        audit: records changes.
    """

    def __init__(self, stub: "OrchestratorServiceAsyncStub", validator: RequestValidator, audit: Audit) -> None:
        self._stub = stub
        self._validator = validator
        self._audit = audit

    async def save(self, request: pb.SavePipelineRequest) -> Saved:
        """Saves a plan as the next version, unless the latest version is equal."""
        if len(request.description) > DESCRIPTION_CHARACTERS:
            message = f"the description is longer than {DESCRIPTION_CHARACTERS} characters"
            raise InvalidRequest(message, remedy="shorten it", port="description")
        if request.policy not in DataPolicy.values():
            raise InvalidRequest(
                "policy has an unknown value", remedy="use a value of the enum in the proto", port="policy"
            )
        await self._validator.normalize_plan(request.plan)
        before = await self._latest(request.name)
        await self._audit.record("pipeline.save", request.name)
        pipeline = await call(self._stub.SavePipeline, request)
        return Saved(pipeline, pipeline.version > before)

    async def get(self, ref: PipelineRef) -> Pipeline:
        """Returns a version; 0 is the latest."""
        return await call(self._stub.GetPipeline, pb.GetPipelineRequest(name=ref.name, version=ref.version))

    async def list(self, request: pb.ListPipelinesRequest) -> pb.ListPipelinesResponse:
        return await call(self._stub.ListPipelines, request)

    async def delete(self, ref: PipelineRef) -> None:
        """Deletes a version; 0 deletes all."""
        await self._audit.record("pipeline.delete", ref.name, version=ref.version)
        await call(self._stub.DeletePipeline, pb.DeletePipelineRequest(name=ref.name, version=ref.version))

    async def policy(self, ref: PipelineRef, requested: "DataPolicy.ValueType") -> "DataPolicy.ValueType":
        """Data policy for a run's inputs: local if the pipeline requires it, else the requested policy."""
        return DATA_POLICY_LOCAL if (await self.get(ref)).policy == DATA_POLICY_LOCAL else requested

    async def _latest(self, name: str) -> int:
        try:
            return (await self.get(PipelineRef(name=name))).version
        except NotFound:
            return 0
