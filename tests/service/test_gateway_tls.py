"""HTTP and gRPC with TLS, while the services behind use certificates of the deployment."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx
import pytest

from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.gateway_pb2 import ListTasksRequest
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import tls
from services.common.errors import FailedPrecondition
from tests.support.certificates import Authority
from tests.support.gateway import GatewayUnderTest, start_gateway


@pytest.fixture
def public_authority(tmp_path: Path) -> Authority:
    """Certificate authority that the gateway's clients trust."""
    return Authority(tmp_path / "world")


@pytest.fixture
async def gateway(tmp_path: Path, public_authority: Authority) -> AsyncIterator[GatewayUnderTest]:
    tls.set_process_identity(Authority(tmp_path / "services").identity("gateway"))
    shown = public_authority.certificate("gateway", "localhost", "127.0.0.1")
    settings = {"certificate": shown.chain, "certificate_key": shown.key}
    try:
        async with start_gateway(tmp_path, settings=settings) as opened:
            yield opened
    finally:
        tls.set_process_identity(None)


async def test_http_is_served_over_tls_only(gateway: GatewayUnderTest, public_authority: Authority) -> None:
    async with httpx.AsyncClient(
        verify=ssl.create_default_context(cafile=public_authority.file), trust_env=False
    ) as client:
        run = await client.post(
            f"https://127.0.0.1:{gateway.http_port}/v1/runs", json={"request": "hello"}, headers={"prefer": "wait=5"}
        )
    assert run.json()["state"] == "completed"  # the orchestrator accepted the gateway's certificate
    with pytest.raises(httpx.HTTPError):
        await gateway.http.get("/healthz")


async def test_grpc_is_served_over_tls_only(gateway: GatewayUnderTest, public_authority: Authority) -> None:
    believed = grpc.ssl_channel_credentials(public_authority.file.read_bytes())
    async with grpc.aio.secure_channel(f"localhost:{gateway.grpc_port}", believed) as channel:
        stub = GatewayServiceStub(channel)
        events = [
            event async for event in stub.CreateRun(pb.CreateRunRequest(spec=RunSpec(request="hello")), timeout=5)
        ]
    assert events[-1].HasField("run_ended")
    async with grpc.aio.insecure_channel(f"localhost:{gateway.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await GatewayServiceStub(channel).ListTasks(ListTasksRequest(), timeout=5)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_mismatched_private_key_is_reported(tmp_path: Path, public_authority: Authority) -> None:
    settings = {
        "certificate": public_authority.certificate("gateway", "localhost").chain,
        "certificate_key": public_authority.certificate("other", "localhost").key,
    }
    with pytest.raises(FailedPrecondition, match="not a certificate and its key"):
        async with start_gateway(tmp_path, settings=settings):
            pass


async def test_certificate_without_private_key_is_rejected(tmp_path: Path, public_authority: Authority) -> None:
    settings = {"certificate": public_authority.certificate("gateway", "localhost").chain}
    with pytest.raises(FailedPrecondition, match="its private key"):
        async with start_gateway(tmp_path, settings=settings):
            pass
