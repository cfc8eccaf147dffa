"""Connections with a maximum age, as for services whose replicas come and go."""

import asyncio
from functools import partial
from typing import Any

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from protos.hugginggpt.internal.v1 import responder_pb2_grpc as rpc
from protos.hugginggpt.v1.run_pb2 import Turn
from services.common.channel import connect
from services.common.server import serving

RESPONDER = pb.DESCRIPTOR.services_by_name["ResponderService"]


class PeerReporter(rpc.ResponderServiceServicer):
    """Sends the client's address; for the text "stay" only when released."""

    def __init__(self) -> None:
        self.entered, self.release = asyncio.Event(), asyncio.Event()

    async def Respond(self, request: pb.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        if request.conversation[0].text == "stay":
            self.entered.set()
            await self.release.wait()
        await context.write(pb.RespondEvent(text=context.peer()))


async def test_aged_connection_is_replaced_without_failing_calls() -> None:
    servicer = PeerReporter()
    register = partial(rpc.add_ResponderServiceServicer_to_server, servicer)
    async with (
        asyncio.timeout(20),
        serving(register, RESPONDER, connection_seconds=0.2) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        staying = asyncio.create_task(peer(channel, "stay"))
        await servicer.entered.wait()
        peers = {await peer(channel, "hello")}
        while len(peers) < 4:
            peers.update(await asyncio.gather(*(peer(channel, "hello") for _ in range(8))))
        assert not staying.done()
        servicer.release.set()
        assert await staying


async def peer(channel: Any, text: str) -> str:
    request = pb.RespondRequest(conversation=[Turn(text=text)])
    texts = [event.text async for event in rpc.ResponderServiceStub(channel).Respond(request, timeout=15)]
    return "".join(texts)
