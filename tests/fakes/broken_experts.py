"""Experts that each break one promise, and some that only look as if."""

import asyncio
from typing import Any

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_STATE_FAILED, ModelCard
from services.common import call_context
from services.common.errors import FailedPrecondition, ModelFailed, Overloaded
from tests.support.expert_host import SPEC


class Sound(rpc.ExpertServiceServicer):
    """Keeps enough promises to be examined to the end."""

    def __init__(self) -> None:
        card = ModelCard(id="m", task="saying", revision="1", description="Says.", license="MIT")
        self.described = pb.DescribeResponse(expert="sound", revision="1", tasks=[SPEC], models=[card])
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


class Repeating(Sound):
    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        return self.described


class Nameless(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.described.expert = ""


class Disagreeing(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.described.tasks.add(name="summarization")


class Unhealthy(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.names = ()


class Incomplete(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["data"].json = self.reply.outputs.pop("text").text


class Sloppy(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["data"].json = '{"b": 1}'


class Absent(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reply.outputs["image"].artifact.CopyFrom(Artifact(sha256="0" * 64, media_type="image/png"))


class Silent(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.trailer = []


class Other(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reply.revision = "2"


class Failing(Sound):
    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        raise ModelFailed("no", remedy="try another")


class Crowded(Sound):
    """Breaks down when there are many."""

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


class Rude(Crowded):
    """Does not say when to come back."""

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        try:
            return await super().Infer(request, context)
        except ModelFailed:
            raise Overloaded("too many", remedy="wait") from None


class Outside(Sound):
    """Runs elsewhere, and heeds the policy."""

    def __init__(self) -> None:
        super().__init__()
        self.described.models[0].location = MODEL_LOCATION_EXTERNAL

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        if not call_context.allows_external_endpoints():
            raise FailedPrecondition("it may not leave", reason="POLICY", remedy="allow it")
        return await super().Infer(request, context)


class Leaking(Outside):
    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        return self.reply


class Careless(Outside):
    """Takes who says nothing for one who allows all."""

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        nobody = not any(key == call_context.METADATA_KEY for key, _ in context.invocation_metadata())
        return self.reply if nobody else await super().Infer(request, context)


class Unreadable(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.described.tasks[0].parameters.add(name="tone", json_schema="{")


class Formless(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.described.tasks[0].inputs.add(name="thing", required=True)


class Mute(Sound):
    """Is in trouble, and does not say why."""

    def __init__(self) -> None:
        super().__init__()
        self.described.models[0].state = MODEL_STATE_FAILED


class Chatty(Sound):
    async def Progress(self, request: pb.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await context.write(pb.ProgressEvent(call_id=request.call_ids[0]))


class Hanging(Sound):
    """Never answers a call."""

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        await asyncio.Event().wait()
        return self.reply


class NeverLoaded(Hanging):
    """Whose model does not come to be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.described.load.ClearField("loaded")
        self.names = ()


class SlowlyLoaded(Sound):
    """Loads its model during the first call.

    Args:
        looks: how often it is still said not to be loaded.
        answers: whether calls are answered once it is.
    """

    def __init__(self, looks: int, *, answers: bool = True) -> None:
        super().__init__()
        self.described.load.ClearField("loaded")
        self.names = ()
        self._looks = looks
        self._answers = answers
        self._called = False
        self._loaded = asyncio.Event()

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        if self._called and not self._loaded.is_set():
            self._looks -= 1
            if not self._looks:
                self._loaded.set()
                self.described.load.loaded.append("m")
        return await super().Describe(request, context)

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        self._called = True
        await self._loaded.wait()
        if not self._answers:
            await asyncio.Event().wait()
        return await super().Infer(request, context)
