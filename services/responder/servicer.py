"""ResponderService over gRPC."""

import asyncio
from typing import Any

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from protos.hugginggpt.internal.v1 import responder_pb2_grpc as rpc
from services.responder.responder import Responder, ResponseEvent
from services.responder.run_summary import RunSummary


class ResponderServicer(rpc.ResponderServiceServicer):
    """Streams the answer of a run.

    Args:
        responder: writes it.
    """

    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    async def Respond(self, request: pb.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        lock = asyncio.Lock()  # gRPC allows one write at a time

        async def emit(event: ResponseEvent) -> None:
            message = pb.RespondEvent(text=event) if isinstance(event, str) else pb.RespondEvent(decision=event)
            async with lock:
                await context.write(message)

        summary = RunSummary.from_proto(request)
        seconds = context.time_remaining()
        await self._responder.respond(summary, emit, seconds=seconds, without_llm=request.without_llm)
