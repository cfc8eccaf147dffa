"""Five thousand connections dropped in different ways leak no resources."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from services.common.server import serving
from tests.fakes import ScriptedOrchestrator
from tests.support.watched_gateway import Resources, WatchedGateway, watched_gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MB = 2**20
ROUNDS = 1_125
"""Connections dropped in each of the four ways over HTTP."""
CHANNELS = 500
TOGETHER = 50

SECONDS = 90.0
FILES, TASKS, GROWTH = 2, 2, 24 * MB
"""Maximum growth of open files, tasks and memory in bytes since the first few connections."""

Drop = Callable[[WatchedGateway], Awaitable[None]]


async def _answered(gateway: WatchedGateway, sent: str, until: bytes) -> None:
    """Sends a request, reads the response up to `until`, and aborts the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    try:
        writer.write(sent.replace("\n", "\r\n").encode())
        if until:
            await reader.readuntil(until)
    finally:
        writer.transport.abort()


def _request(gateway: WatchedGateway, line: str, head: str = "") -> str:
    return f"{line} HTTP/1.1\nhost: 127.0.0.1:{gateway.http_port}\n{head}\n"


async def idle(gateway: WatchedGateway) -> None:
    """Disconnects from an idle keep-alive connection."""
    await _answered(gateway, _request(gateway, "GET /healthz"), b'"status"')


async def half_a_head(gateway: WatchedGateway) -> None:
    await _answered(gateway, "GET /v1/tasks HTTP/1.1\nhost: 127", b"")


async def half_a_body(gateway: WatchedGateway) -> None:
    head = "content-type: application/json\ncontent-length: 1000\nexpect: 100-continue\n"
    await _answered(gateway, _request(gateway, "POST /v1/runs", head), b"100 Continue")


async def cut_stream(gateway: WatchedGateway) -> None:
    await _answered(gateway, _request(gateway, "GET /v1/runs/run_1/events"), b"event: run_accepted")


async def channel(gateway: WatchedGateway) -> None:
    """Disconnects during a call."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}", options=own) as opened:
        watching = GatewayServiceStub(opened).WatchRun(gateway_pb2.WatchRunRequest(run_id="run_1"), timeout=SECONDS)
        await watching.read()


async def drop_connections(gateway: WatchedGateway, drops: Sequence[tuple[Drop, int]]) -> None:
    slots = asyncio.Semaphore(TOGETHER)

    async def one(drop: Drop) -> None:
        async with slots:
            await drop(gateway)

    async with asyncio.TaskGroup() as group:
        for drop, times in drops:
            for _ in range(times):
                group.create_task(one(drop))


def no_more(before: Resources) -> Callable[[Resources], bool]:
    return lambda held: held.files <= before.files + FILES and held.tasks <= before.tasks + TASKS


async def test_connections_leak_no_resources(tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(script=())
    register = partial(orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server, orchestrator)
    service = orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"]
    over_http = (idle, half_a_head, half_a_body, cut_stream)
    async with (
        serving(register, service) as running,
        watched_gateway(tmp_path, f"127.0.0.1:{running.port}") as gateway,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.http_port}", trust_env=False) as client,
    ):
        assert (await client.post("/v1/runs", json={"request": "wait"})).status_code == 202
        untouched = await gateway.resources()
        async with asyncio.timeout(SECONDS):
            await drop_connections(gateway, [(drop, 50) for drop in (*over_http, channel)])
            before = await gateway.until(no_more(untouched), 10)
            await drop_connections(gateway, [(channel, CHANNELS), *((drop, ROUNDS) for drop in over_http)])
        after = await gateway.until(no_more(before), 10)
        assert (await client.get("/healthz")).status_code == 200
    assert no_more(before)(after), (before, after)
    assert after.bytes - before.bytes <= GROWTH, (before, after)
