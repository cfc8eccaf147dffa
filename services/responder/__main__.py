"""Entry point of the responder."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from protos.hugginggpt.internal.v1 import responder_pb2_grpc as rpc
from services.common.server import RunningServer, run, serving
from services.llm.client import LLM
from services.responder.llm_answer import LLMWriter
from services.responder.responder import Responder
from services.responder.servicer import ResponderServicer
from services.responder.settings import Settings

SERVICE = pb.DESCRIPTOR.services_by_name["ResponderService"]


@asynccontextmanager
async def responder(settings: Settings) -> AsyncIterator[RunningServer]:
    """Runs the responder's server for the block."""
    async with AsyncExitStack() as stack:
        llm = (
            await stack.enter_async_context(LLM.open(settings.llm, role="responder")) if settings.llm.base_url else None
        )
        servicer = ResponderServicer(Responder(LLMWriter(llm) if llm else None))
        register = partial(rpc.add_ResponderServiceServicer_to_server, servicer)
        yield await stack.enter_async_context(
            serving(
                register,
                SERVICE,
                listen=settings.listen,
                drain_seconds=settings.drain_seconds,
                connection_seconds=settings.connection_seconds,
                health_listen=settings.health_listen,
            )
        )


if __name__ == "__main__":
    run("responder", responder, Settings)
