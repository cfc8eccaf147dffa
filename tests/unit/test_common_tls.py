"""Mutual TLS between services, and renewal of certificates."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.hugginggpt.v1 import expert_pb2
from services.common import tls
from services.common.channel import connect, dial
from services.common.errors import FailedPrecondition, Unavailable
from services.common.server import RunningServer, serving
from services.common.settings import ServiceSettings
from services.common.tls import TlsIdentity
from tests.support.certificates import Authority

SERVICE = expert_pb2.DESCRIPTOR.services_by_name["ExpertService"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture(autouse=True)
def no_process_identity() -> Iterator[None]:
    yield
    tls.set_process_identity(None)


@asynccontextmanager
async def serve(**options: str) -> AsyncIterator[RunningServer]:
    async with serving(lambda _: None, SERVICE, **options) as running:  # type: ignore[arg-type]  # all of them are texts
        yield running


async def health(channel: grpc.aio.Channel) -> int:
    async with channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        return int((await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)).status)


async def is_rejected(port: int, channel: grpc.aio.Channel) -> bool:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await health(channel)
    return refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_services_connect_by_name_and_by_address(authority: Authority) -> None:
    tls.set_process_identity(authority.identity("planner"))
    async with serve() as running:
        assert await health(dial(f"127.0.0.1:{running.port}")) == health_pb2.HealthCheckResponse.SERVING
        assert await health(connect(f"dns:///localhost:{running.port}")) == health_pb2.HealthCheckResponse.SERVING


async def test_client_without_a_certificate_of_the_authority_is_rejected(authority: Authority, tmp_path: Path) -> None:
    tls.set_process_identity(authority.identity("planner"))
    stranger = Authority(tmp_path / "theirs").identity("planner")
    async with serve() as running:
        tls.set_process_identity(None)
        assert await is_rejected(running.port, dial(f"127.0.0.1:{running.port}"))
        known = grpc.ssl_channel_credentials(authority.file.read_bytes())
        options = [("grpc.ssl_target_name_override", "hugginggpt")]
        assert await is_rejected(
            running.port, grpc.aio.secure_channel(f"127.0.0.1:{running.port}", known, options=options)
        )
        tls.set_process_identity(replace(stranger, authority=stranger.authority))
        assert await is_rejected(running.port, dial(f"127.0.0.1:{running.port}"))


async def test_server_of_another_authority_is_rejected(authority: Authority, tmp_path: Path) -> None:
    tls.set_process_identity(Authority(tmp_path / "theirs").identity("planner"))
    async with serve() as running:
        tls.set_process_identity(authority.identity("orchestrator"))
        assert await is_rejected(running.port, dial(f"127.0.0.1:{running.port}"))


async def test_health_listener_serves_only_health_without_tls(authority: Authority, unused_tcp_port: int) -> None:
    tls.set_process_identity(authority.identity("planner"))
    address = f"127.0.0.1:{unused_tcp_port}"
    async with serve(health_listen=address):
        assert await health(grpc.aio.insecure_channel(address)) == health_pb2.HealthCheckResponse.SERVING
        async with grpc.aio.insecure_channel(address) as channel:
            describe: Any = channel.unary_unary("/hugginggpt.v1.ExpertService/Describe")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await describe(b"", timeout=5)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_server_presents_a_renewed_certificate_to_new_connections(authority: Authority) -> None:
    identity = authority.identity("planner")
    tls.set_process_identity(identity)
    async with serve() as running:
        before = await _shown(running.port, identity)
        authority.identity("planner")
        os.utime(identity.certificate.chain, (1, 1))  # a clock of coarse grain would not see the change
        after = await _shown(running.port, identity)
        assert before != after
        assert await health(dial(f"127.0.0.1:{running.port}")) == health_pb2.HealthCheckResponse.SERVING


async def test_ssl_context_presents_a_renewed_certificate(authority: Authority) -> None:
    identity = authority.identity("gateway")
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=identity.certificate.ssl_context()
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        before = await _shown(port, identity)
        authority.identity("gateway")
        os.utime(identity.certificate.chain, (1, 1))
        assert await _shown(port, identity) != before


async def _shown(port: int, identity: TlsIdentity) -> bytes:
    """The certificate that a server presents."""
    context = ssl.create_default_context(cafile=identity.authority)
    identity.certificate.load_into(context)
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=identity.name)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    assert isinstance(shown, bytes)
    return shown


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("expired", "certificate has expired"),
        ("name", "Hostname mismatch"),
        ("authority", "self-signed certificate|unable to get local issuer|signature failure"),
        ("key", "KEY_VALUES_MISMATCH"),
        ("garbage", "not a certificate"),
    ],
)
def test_unacceptable_certificate_is_reported_at_startup(
    authority: Authority, tmp_path: Path, wrong: str, message: str
) -> None:
    identity = authority.identity(
        "planner", days=-1 if wrong == "expired" else 1, name="x" if wrong == "name" else "hugginggpt"
    )
    if wrong == "authority":
        identity = replace(identity, authority=Authority(tmp_path / "theirs").file)
    if wrong == "key":
        identity.certificate.key.write_bytes(authority.certificate("other", "hugginggpt").key.read_bytes())
    if wrong == "garbage":
        identity.certificate.chain.write_text("garbage")
    with pytest.raises(FailedPrecondition, match=message) as refused:
        tls.set_process_identity(identity)
    assert refused.value.reason == "CERTIFICATE"
    assert refused.value.remedy


def test_missing_file_is_reported(authority: Authority) -> None:
    identity = authority.identity("planner")
    identity.certificate.key.unlink()
    with pytest.raises(Unavailable, match="No such file"):
        tls.set_process_identity(identity)


def test_incomplete_identity_is_rejected(authority: Authority) -> None:
    with pytest.raises(FailedPrecondition, match="its key and the authority"):
        _ = ServiceSettings(tls_certificate=authority.identity("planner").certificate.chain).identity
