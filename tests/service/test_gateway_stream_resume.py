"""A client killed a hundred times sees every event once, also when orchestrators are replaced."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEnded, RunEvent
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.server import serving
from tests.fakes import ScriptedOrchestrator, ScriptedRun
from tests.support.gateway import GatewayUnderTest, start_gateway

pytestmark = pytest.mark.slow

DEATHS = 100
REPLACED = frozenset({20, 50, 80})
"""Kills of the client after which the orchestrator is replaced, too."""
SECONDS = 60.0
BYTE_SECONDS = 2e-4
"""Time limit of a connection, in seconds per byte that it may read."""
PAUSE_SECONDS = 0.02
"""Time between two connections of a client."""

SERVICE = orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"]
END = RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED))
FRAME = re.compile(rb"(?:^|\n)id: (\d+)\nevent: (\w[\w.]*)\n(data: .*)")


class GatewayWithRestarts:
    """A gateway, and an orchestrator that can be replaced by another with the same journal."""

    def __init__(self, folder: Path) -> None:
        self.orchestrator = ScriptedOrchestrator(script=())
        self.gateway: GatewayUnderTest
        self._folder = folder
        self._living = AsyncExitStack()
        self._address = "127.0.0.1:0"

    async def replace(self) -> None:
        await self._living.aclose()
        register = partial(orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server, self.orchestrator)
        running = await self._living.enter_async_context(serving(register, SERVICE, listen=self._address))
        self._address = f"127.0.0.1:{running.port}"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["GatewayWithRestarts"]:
        async with self._living:
            await self.replace()
            async with start_gateway(self._folder, settings={"orchestrator": self._address}) as self.gateway:
                yield self

    async def run(self) -> ScriptedRun:
        answer = await self.gateway.http.post(
            "/v1/responses", json={"model": "hugginggpt", "input": "x", "background": True}
        )
        assert answer.status_code == 200, answer.text
        return await self.orchestrator.arrivals.get()


class Client:
    """Events that a repeatedly reconnecting client has received."""

    def __init__(self, first: int) -> None:
        self.seen: list[int] = []
        self.ended = False
        self._first = first

    @property
    def last(self) -> int:
        return self.seen[-1] if self.seen else self._first - 1

    def see(self, number: int, name: str) -> None:
        assert number == self.last + 1, f"{number} after {self.last}"
        self.seen.append(number)
        self.ended = name in {"run_ended", "response.completed"}


Life = Callable[[GatewayWithRestarts, ScriptedRun, Client, int], Awaitable[None]]
"""One connection of a client, cut after a number of bytes."""


async def _cut(gateway_with_restarts: GatewayWithRestarts, path: str, head: str, client: Client, most: int) -> None:
    """Reads at most a number of bytes; records the complete events."""
    port = gateway_with_restarts.gateway.http_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = bytearray()
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{head}connection: close\r\n\r\n".encode())
        async with asyncio.timeout(most * BYTE_SECONDS):
            await reader.readuntil(b"\r\n\r\n")
            while len(content) < most and (piece := await _chunk(reader)):
                content += piece
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    for whole in bytes(content[:most]).split(b"\n\n")[:-1]:
        if found := FRAME.search(whole):
            assert json.loads(found[3].removeprefix(b"data: "))
            client.see(int(found[1]), found[2].decode())


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    size = int(await reader.readuntil(b"\r\n"), 16)
    return (await reader.readexactly(size + 2))[:-2]


async def by_header(gateway_with_restarts: GatewayWithRestarts, run: ScriptedRun, client: Client, most: int) -> None:
    await _cut(
        gateway_with_restarts, f"/v1/runs/{run.run_id}/events", f"last-event-id: {client.last}\r\n", client, most
    )


async def by_query(gateway_with_restarts: GatewayWithRestarts, run: ScriptedRun, client: Client, most: int) -> None:
    await _cut(gateway_with_restarts, f"/v1/runs/{run.run_id}/events?after={client.last}", "", client, most)


async def by_response(gateway_with_restarts: GatewayWithRestarts, run: ScriptedRun, client: Client, most: int) -> None:
    path = f"/v1/responses/{run.run_id.replace('run_', 'resp_')}?stream=true&starting_after={client.last}"
    await _cut(gateway_with_restarts, path, "", client, most)


async def by_call(gateway_with_restarts: GatewayWithRestarts, run: ScriptedRun, client: Client, most: int) -> None:
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{gateway_with_restarts.gateway.grpc_port}", options=own
    ) as channel:
        request = gateway_pb2.WatchRunRequest(run_id=run.run_id, after_sequence=client.last)
        call = GatewayServiceStub(channel).WatchRun(request, timeout=SECONDS)
        try:
            async with asyncio.timeout(most * BYTE_SECONDS):
                for _ in range(most // 150):
                    event = await call.read()
                    if not isinstance(event, RunEvent):
                        return
                    client.see(event.sequence, event.WhichOneof("event") or "")
        except TimeoutError:
            pass
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise


@pytest.mark.parametrize(
    ("life", "first"),
    [(by_header, 1), (by_query, 1), (by_response, 0), (by_call, 1)],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_client_restarted_100_times_sees_every_event_once(tmp_path: Path, life: Life, first: int) -> None:
    random, client = Random(6), Client(first)
    deaths, in_vain = 0, 0
    async with GatewayWithRestarts(tmp_path).opened() as gateway_with_restarts, asyncio.timeout(SECONDS):
        run, replacing = await gateway_with_restarts.run(), set[asyncio.Task[None]]()
        while not client.ended:
            if deaths in REPLACED:
                replacing.add(asyncio.create_task(gateway_with_restarts.replace()))
            if deaths < DEATHS:
                run.send(*(RunEvent(answer_chunk=AnswerChunk(text=f"{deaths} {more}")) for more in "ab"))
            if deaths == DEATHS:
                run.send(END)
            before = client.last
            await life(gateway_with_restarts, run, client, random.choice((1, 40, 160, 330, 500)) << in_vain)
            deaths, in_vain = deaths + 1, 0 if client.last > before else in_vain + 1
            await asyncio.sleep(PAUSE_SECONDS if in_vain else 0)
        await asyncio.gather(*replacing)
    assert deaths > DEATHS
    assert len(client.seen) >= 2 * DEATHS
    if first:
        assert client.last == len(run.events)
