"""Plans kept under names: what is asked of the orchestrator about them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.admission import Admission
from gateway.auth.audit import Audit
from gateway.service_calls import ask
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DataPolicy
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline, PipelineRef
from services.common.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

DESCRIPTION_CHARACTERS = 10_000


@dataclass(frozen=True)
class Saved:
    """A pipeline after it was saved."""

    pipeline: Pipeline
    new: bool
    """It is a version that was not there before."""


class Pipelines:
    """The caller's pipelines.

    Every method raises the ServiceError the orchestrator raised, or Unavailable if it did not answer.

    Args:
        stub: the orchestrator's.
        admission: looks at plans.
        audit: is told of what changes for all who use them.
    """

    def __init__(self, stub: "OrchestratorServiceAsyncStub", admission: Admission, audit: Audit) -> None:
        self._stub = stub
        self._admission = admission
        self._audit = audit

    async def save(self, request: pb.SavePipelineRequest) -> Saved:
        """Keeps a plan as the next version of a name, unless the latest is the same."""
        if len(request.description) > DESCRIPTION_CHARACTERS:
            message = f"the description is longer than {DESCRIPTION_CHARACTERS} characters"
            raise InvalidRequest(message, remedy="shorten it", port="description")
        if request.policy not in DataPolicy.values():
            raise InvalidRequest("policy has no such value", remedy="see the proto's enum", port="policy")
        await self._admission.settle_plan(request.plan)
        before = await self._latest(request.name)
        await self._audit.record("pipeline.save", request.name)
        pipeline = await ask(self._stub.SavePipeline, request)
        return Saved(pipeline, pipeline.version > before)

    async def get(self, ref: PipelineRef) -> Pipeline:
        """A version; the latest for 0."""
        return await ask(self._stub.GetPipeline, pb.GetPipelineRequest(name=ref.name, version=ref.version))

    async def list(self, request: pb.ListPipelinesRequest) -> pb.ListPipelinesResponse:
        return await ask(self._stub.ListPipelines, request)

    async def delete(self, ref: PipelineRef) -> None:
        """Removes a version; all for 0."""
        await self._audit.record("pipeline.delete", ref.name, version=ref.version)
        await ask(self._stub.DeletePipeline, pb.DeletePipelineRequest(name=ref.name, version=ref.version))

    async def policy(self, ref: PipelineRef, asked: "DataPolicy.ValueType") -> "DataPolicy.ValueType":
        """What holds for what comes in to be run through it: local if the pipeline says so, else what is asked for."""
        return DATA_POLICY_LOCAL if (await self.get(ref)).policy == DATA_POLICY_LOCAL else asked

    async def _latest(self, name: str) -> int:
        try:
            return (await self.get(PipelineRef(name=name))).version
        except NotFound:
            return 0
