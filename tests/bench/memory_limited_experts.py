"""Experts with room for fewer models than there are, who must load those they do not hold."""

import asyncio
from collections import OrderedDict

import grpc

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from services.common.channel import MESSAGE_LIMITS

MODELS = tuple(f"model-{number}" for number in range(1, 9))
REPLICAS = 3
ROOM = 3
LOAD_SECONDS = 0.02

LOADED, HELD = "loaded", "held"
"""What the text of a reply says: its call had to wait for a load of its own, or not."""


class Shelf:
    """One replica; it puts away the model that has gone unused for longest."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, asyncio.Event] = OrderedDict()
        self._calls = 0

    async def infer(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        model = InferRequest.FromString(request).model
        self._calls += 1
        text = await self._held(model)
        self._calls -= 1
        told = [("expert-queue", str(self._calls)), ("expert-loaded", ",".join(self._models))]
        context.set_trailing_metadata((*told, ("expert-free-bytes", "0")))
        return InferResponse(outputs={"text": Value(text=text)}, revision="1").SerializeToString()

    async def _held(self, model: str) -> str:
        """Has the model there; says whether it had to be loaded for this call."""
        if model in self._models:
            self._models.move_to_end(model)
            await self._models[model].wait()
            return HELD
        there = self._models[model] = asyncio.Event()
        if len(self._models) > ROOM:
            self._models.popitem(last=False)
        await asyncio.sleep(LOAD_SECONDS)
        there.set()
        return LOADED


async def started() -> list[tuple[grpc.aio.Server, str]]:
    """The replicas, each a server with its address."""
    running = []
    for _ in range(REPLICAS):
        server = grpc.aio.server(options=MESSAGE_LIMITS)
        infer: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(Shelf().infer)
        handlers = grpc.method_handlers_generic_handler("hugginggpt.v1.ExpertService", {"Infer": infer})
        server.add_generic_rpc_handlers([handlers])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        running.append((server, address))
    return running
