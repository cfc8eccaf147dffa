"""Expert replicas whose memory holds fewer models than exist, so that calls must wait for loads."""

import asyncio
from collections import OrderedDict

import grpc

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from services.common.channel import MESSAGE_LIMITS

MODELS = tuple(f"model-{number}" for number in range(1, 9))
REPLICAS = 3
CAPACITY = 3
"""Models that one replica holds at once."""
LOAD_SECONDS = 0.02

LOADED, RESIDENT = "loaded", "resident"
"""Text of a reply: the call loaded its model, or the model was in memory already."""


class MemoryLimitedExpert:
    """One replica, which evicts the least recently used model."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, asyncio.Event] = OrderedDict()
        self._calls = 0

    async def infer(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        model = InferRequest.FromString(request).model
        self._calls += 1
        text = await self._load(model)
        self._calls -= 1
        load = [("expert-queue", str(self._calls)), ("expert-loaded", ",".join(self._models))]
        context.set_trailing_metadata((*load, ("expert-free-bytes", "0")))
        return InferResponse(outputs={"text": Value(text=text)}, revision="1").SerializeToString()

    async def _load(self, model: str) -> str:
        """Loads the model unless it is in memory; returns LOADED or RESIDENT."""
        if model in self._models:
            self._models.move_to_end(model)
            await self._models[model].wait()
            return RESIDENT
        is_loaded = self._models[model] = asyncio.Event()
        if len(self._models) > CAPACITY:
            self._models.popitem(last=False)
        await asyncio.sleep(LOAD_SECONDS)
        is_loaded.set()
        return LOADED


async def start_replicas() -> list[tuple[grpc.aio.Server, str]]:
    """Starts the replicas, and returns their servers with their addresses."""
    running = []
    for _ in range(REPLICAS):
        server = grpc.aio.server(options=MESSAGE_LIMITS)
        infer: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(MemoryLimitedExpert().infer)
        handlers = grpc.method_handlers_generic_handler("hugginggpt.v1.ExpertService", {"Infer": infer})
        server.add_generic_rpc_handlers([handlers])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        running.append((server, address))
    return running
