"""Graceful shutdown: HTTP and gRPC drain together, active requests finish."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from protos.hugginggpt.v1.gateway_pb2 import UploadArtifactRequest
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from services.common.channel import dial
from tests.support.gateway import GatewayUnderTest, rpc_error, start_gateway

HEAD = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\nsome words'
TAIL = b' and more\r\n--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--x--\r\n'


class Slow:
    """An upload whose last part is sent when the test releases it."""

    def __init__(self) -> None:
        self.started, self.released = asyncio.Event(), asyncio.Event()

    async def body(self) -> AsyncIterator[bytes]:
        yield HEAD
        self.started.set()
        await self.released.wait()
        yield TAIL

    async def requests(self) -> AsyncIterator[UploadArtifactRequest]:
        yield UploadArtifactRequest(name="a.txt")
        async for part in self.body():
            yield UploadArtifactRequest(chunk=part)


@dataclass(frozen=True)
class Outside:
    """Clients that outlive the gateway."""

    http: httpx.AsyncClient
    channel: grpc.aio.Channel

    def upload(self, file: Slow) -> "asyncio.Task[httpx.Response]":
        headers = {"content-type": "multipart/form-data; boundary=x"}
        return asyncio.create_task(self.http.post("/v1/files", content=file.body(), headers=headers))


@asynccontextmanager
async def outside(gateway: GatewayUnderTest) -> AsyncIterator[Outside]:
    base = f"http://127.0.0.1:{gateway.http_port}"
    async with (
        httpx.AsyncClient(base_url=base, timeout=20, trust_env=False) as http,
        dial(f"127.0.0.1:{gateway.grpc_port}") as channel,
    ):
        yield Outside(http, channel)


async def test_draining_gateway_finishes_uploads_and_is_not_ready(tmp_path: Path) -> None:
    file = Slow()
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(start_gateway(tmp_path, settings={"DRAIN_SECONDS": 10.0}))
        async with outside(gateway) as clients:
            health: Any = HealthStub(clients.channel)
            watch = health.Watch(HealthCheckRequest(service="readiness"))
            assert (await watch.read()).status == HealthCheckResponse.SERVING
            upload = clients.upload(file)
            await file.started.wait()
            closing = asyncio.create_task(stack.aclose())
            assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING
            assert not upload.done()
            file.released.set()
            assert (await upload).is_success
            await closing


async def wait_until_rejected(port: int) -> None:
    """Waits until a server accepts no more connections."""
    with pytest.raises(ConnectionError):
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()


async def test_http_and_grpc_drain_at_the_same_time(tmp_path: Path) -> None:
    by_http, by_grpc = Slow(), Slow()
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(start_gateway(tmp_path, settings={"DRAIN_SECONDS": 20.0}))
        async with outside(gateway) as clients:
            upload = clients.upload(by_http)
            call = GatewayServiceStub(clients.channel).UploadArtifact(by_grpc.requests())
            await by_http.started.wait()
            await by_grpc.started.wait()
            closing = asyncio.create_task(stack.aclose())
            await wait_until_rejected(gateway.http_port)
            await wait_until_rejected(gateway.grpc_port)
            assert not upload.done()
            assert not call.done()
            by_http.released.set()
            by_grpc.released.set()
            assert (await upload).is_success
            assert (await call).name == "a.txt"
            await closing


async def test_uploads_are_cut_off_after_the_drain_time(tmp_path: Path) -> None:
    by_http, by_grpc = Slow(), Slow()
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(start_gateway(tmp_path, settings={"DRAIN_SECONDS": 1.0}))
        async with outside(gateway) as clients:
            upload = clients.upload(by_http)
            call = GatewayServiceStub(clients.channel).UploadArtifact(by_grpc.requests())
            await by_http.started.wait()
            await by_grpc.started.wait()
            await stack.aclose()
            assert (await rpc_error(call)).code() == grpc.StatusCode.UNAVAILABLE
            by_http.released.set()
            with pytest.raises(httpx.HTTPError):
                await upload
