"""Experts that each violate one rule of the expert interface, and correct ones that load slowly or are external."""

import asyncio
from typing import Any

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_STATE_FAILED, ModelCard
from services.common import call_context
from services.common.errors import FailedPrecondition, InvalidRequest, ModelFailed, Overloaded, to_failure
from tests.fakes.infer_only import InferOnlyExpert
from tests.support.expert_host import SPEC


class MinimalExpert(InferOnlyExpert):
    """Correct enough to pass all checks but one."""

    def __init__(self) -> None:
        card = ModelCard(id="m", task="saying", revision="1", description="Says.", license="MIT")
        self.described = pb.DescribeResponse(expert="minimal", revision="1", tasks=[SPEC], models=[card])
        self.described.load.loaded.append("m")
        self.reply = pb.InferResponse(outputs={"text": Value(text="hello")}, revision="1")
        self.trailer = [("expert-queue", "0"), ("expert-loaded", "m"), ("expert-free-bytes", "0")]
        self.names: tuple[str, ...] = ("m",)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        known = request.known_revision == self.described.revision
        return pb.DescribeResponse(revision="1", unchanged=True) if known else self.described

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        context.set_trailing_metadata(self.trailer)
        return self.reply

    async def Progress(self, request: pb.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        return


class RepeatsDescription(MinimalExpert):
    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        return self.described


class WithoutName(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.described.expert = ""


class OtherPortsThanStandard(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.described.tasks.add(name="summarization")


class WithoutModelHealth(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.names = ()


class OmitsRequiredOutput(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["data"].json = self.reply.outputs.pop("text").text


class NonCanonicalJson(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["data"].json = '{"b": 1}'


class ArtifactNotStored(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["image"].artifact.CopyFrom(Artifact(sha256="0" * 64, media_type="image/png"))


class WithoutTrailers(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.trailer = []


class OtherRevision(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.reply.revision = "2"


class FailsEveryCall(MinimalExpert):
    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        raise ModelFailed("no", remedy="try another")


class FailsUnderLoad(MinimalExpert):
    """Fails calls when more than 20 are active."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        self.calls += 1
        try:
            if self.calls > 20:
                raise ModelFailed("too many", remedy="none")
            await asyncio.sleep(0.1)
            return await super().Infer(request, context)
        finally:
            self.calls -= 1


class WithoutRetryDelay(FailsUnderLoad):
    """Refuses excess calls without a retry delay."""

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        try:
            return await super().Infer(request, context)
        except ModelFailed:
            raise Overloaded("too many", remedy="wait") from None


class ExternalModel(MinimalExpert):
    """Has an external model and applies the data policy."""

    def __init__(self) -> None:
        super().__init__()
        self.described.models[0].location = MODEL_LOCATION_EXTERNAL

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        if not call_context.allows_external_endpoints():
            raise FailedPrecondition("it may not leave", reason="POLICY", remedy="allow it")
        return await super().Infer(request, context)


class IgnoresPolicy(ExternalModel):
    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        return self.reply


class AssumesOpenPolicy(ExternalModel):
    """Treats a call without a data policy as open."""

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        has_no_caller = not any(key == call_context.METADATA_KEY for key, _ in context.invocation_metadata())
        return self.reply if has_no_caller else await super().Infer(request, context)


class InvalidParameterSchema(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.described.tasks[0].parameters.add(name="tone", json_schema="{")


class PortWithoutModality(MinimalExpert):
    def __init__(self) -> None:
        super().__init__()
        self.described.tasks[0].inputs.add(name="thing", required=True)


class FailedWithoutReason(MinimalExpert):
    """Has a failed model without a failure text."""

    def __init__(self) -> None:
        super().__init__()
        self.described.models[0].state = MODEL_STATE_FAILED


class OffersBatches(MinimalExpert):
    """Correct; offers InferBatch."""

    async def InferBatch(self, request: pb.InferBatchRequest, context: Any) -> pb.InferBatchResponse:
        context.set_trailing_metadata(self.trailer)
        if not request.items:
            raise InvalidRequest("no items", port="items", remedy="send some")
        results = [await self.result(item, context) for item in request.items]
        return pb.InferBatchResponse(results=results, revision="1")

    async def result(self, item: pb.InferBatchItem, context: Any) -> pb.InferBatchResult:
        unknown = [name for name in item.inputs if name not in {port.name for port in SPEC.inputs}]
        if unknown:
            return pb.InferBatchResult(failure=to_failure(InvalidRequest("unknown", port=unknown[0], remedy="omit it")))
        return pb.InferBatchResult(outputs=self.reply.outputs)


class InvalidItemFailsBatch(OffersBatches):
    async def result(self, item: pb.InferBatchItem, context: Any) -> pb.InferBatchResult:
        result = await super().result(item, context)
        if result.HasField("failure"):
            raise InvalidRequest("an item is invalid", remedy="omit it")
        return result


class DropsFailedItems(OffersBatches):
    async def InferBatch(self, request: pb.InferBatchRequest, context: Any) -> pb.InferBatchResponse:
        reply = await super().InferBatch(request, context)
        results = [result for result in reply.results if not result.HasField("failure")]
        return pb.InferBatchResponse(results=results, revision="1")


class AcceptsInvalidItems(OffersBatches):
    async def result(self, item: pb.InferBatchItem, context: Any) -> pb.InferBatchResult:
        return pb.InferBatchResult(outputs=self.reply.outputs)


class AcceptsEmptyBatch(OffersBatches):
    async def InferBatch(self, request: pb.InferBatchRequest, context: Any) -> pb.InferBatchResponse:
        return await super().InferBatch(request, context) if request.items else pb.InferBatchResponse()


class BatchWithoutTrailers(OffersBatches):
    async def InferBatch(self, request: pb.InferBatchRequest, context: Any) -> pb.InferBatchResponse:
        reply = await super().InferBatch(request, context)
        context.set_trailing_metadata(())
        return reply


class IgnoresPolicyOfBatches(ExternalModel, OffersBatches):
    """Applies the data policy to Infer only."""


class ReportsUnknownCalls(MinimalExpert):
    async def Progress(self, request: pb.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await context.write(pb.ProgressEvent(call_id=request.call_ids[0]))


class NeverAnswers(MinimalExpert):
    """Never answers a call."""

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        await asyncio.Event().wait()
        return self.reply


class NeverLoaded(NeverAnswers):
    """Never finishes loading its model."""

    def __init__(self) -> None:
        super().__init__()
        self.described.load.ClearField("loaded")
        self.names = ()


class SlowlyLoaded(MinimalExpert):
    """Loads its model during the first call.

    Args:
        polls: number of Describe calls during the first call before the model is loaded.
        answers: whether calls are answered once the model is loaded.
    """

    def __init__(self, polls: int, *, answers: bool = True) -> None:
        super().__init__()
        self.described.load.ClearField("loaded")
        self.names = ()
        self._polls = polls
        self._answers = answers
        self._called = False
        self._loaded = asyncio.Event()

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        if self._called and not self._loaded.is_set():
            self._polls -= 1
            if not self._polls:
                self._loaded.set()
                self.described.load.loaded.append("m")
        return await super().Describe(request, context)

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        self._called = True
        await self._loaded.wait()
        if not self._answers:
            await asyncio.Event().wait()
        return await super().Infer(request, context)
