"""Opens the responder."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from protos.hugginggpt.v1 import responder_pb2 as pb
from protos.hugginggpt.v1 import responder_pb2_grpc as rpc
from services.responder.responder import Responder
from services.responder.servicer import ResponderServicer
from services.responder.settings import Settings
from services.runtime.server import Serving, run, serving

SERVICE = pb.DESCRIPTOR.services_by_name["ResponderService"]


@asynccontextmanager
async def responder(settings: Settings) -> AsyncIterator[Serving]:
    """Serves answers within the block."""
    register = partial(rpc.add_ResponderServiceServicer_to_server, ResponderServicer(Responder()))
    async with serving(register, SERVICE, listen=settings.listen, drain_seconds=settings.drain_seconds) as running:
        yield running


if __name__ == "__main__":
    run("responder", responder, Settings())
