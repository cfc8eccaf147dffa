"""Channels with certificates that are renewed while the process runs."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from protos.hugginggpt.internal.v1 import responder_pb2_grpc as rpc
from protos.hugginggpt.v1.run_pb2 import Turn
from services.common import tls
from services.common.channel import RenewingChannel, connect, dial
from services.common.server import serving
from services.common.tls import TlsIdentity
from tests.support.certificates import Authority

RESPONDER = pb.DESCRIPTOR.services_by_name["ResponderService"]


class CertificateReporter(rpc.ResponderServiceServicer):
    """Sends the client's certificate; for the text "stay" again when released."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def Respond(self, request: pb.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        shown = context.auth_context()["x509_pem_cert"][0].decode()
        await context.write(pb.RespondEvent(text=shown))
        if request.conversation[0].text == "stay":
            await self.release.wait()
            await context.write(pb.RespondEvent(text=shown))


@pytest.fixture
def servicer() -> CertificateReporter:
    return CertificateReporter()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def identity(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsIdentity]:
    """The identity of this process, whose files are checked for each call."""
    monkeypatch.setattr("services.common.tls.CHECK_SECONDS", 0.0)
    shown = authority.identity("planner")
    tls.set_process_identity(shown)
    yield shown
    tls.set_process_identity(None)


@pytest.fixture
async def port(identity: TlsIdentity, servicer: CertificateReporter) -> AsyncIterator[int]:
    register = partial(rpc.add_ResponderServiceServicer_to_server, servicer)
    async with serving(register, RESPONDER) as running:
        yield running.port


def renew(authority: Authority, identity: TlsIdentity, tick: int = 1) -> str:
    """Writes a new certificate; returns it."""
    authority.identity("planner")
    os.utime(identity.certificate.chain, (tick, tick))  # a clock of coarse grain would not see the change
    return identity.certificate.chain.read_text()


async def reported_certificate(channel: grpc.aio.Channel) -> str:
    request = pb.RespondRequest(conversation=[Turn(text="hello")])
    return "".join([event.text async for event in rpc.ResponderServiceStub(channel).Respond(request, timeout=10)])


@pytest.mark.parametrize("reach", [connect, dial])
async def test_open_channel_presents_a_renewed_certificate_on_the_next_call(
    reach: Callable[[str], grpc.aio.Channel], authority: Authority, identity: TlsIdentity, port: int
) -> None:
    first = identity.certificate.chain.read_text()
    async with reach(f"127.0.0.1:{port}") as channel:
        stub = rpc.ResponderServiceStub(channel)
        request = pb.RespondRequest(conversation=[Turn(text="hello")])
        shown = [event.text async for event in stub.Respond(request, timeout=10)]
        second = renew(authority, identity)
        shown += [event.text async for event in stub.Respond(request, timeout=10)]
        third = renew(authority, identity, tick=2)
        shown += [event.text async for event in stub.Respond(request, timeout=10)]
    assert [one.strip() for one in shown] == [one.strip() for one in (first, second, third)]


async def test_active_call_finishes_on_its_connection(
    authority: Authority, identity: TlsIdentity, port: int, servicer: CertificateReporter
) -> None:
    async with connect(f"127.0.0.1:{port}") as channel:
        staying: Any = rpc.ResponderServiceStub(channel).Respond(
            pb.RespondRequest(conversation=[Turn(text="stay")]), timeout=20
        )
        before = (await staying.read()).text
        renew(authority, identity)
        assert await reported_certificate(channel) != before
        servicer.release.set()
        assert (await staying.read()).text == before


async def test_mismatched_files_are_ignored(authority: Authority, identity: TlsIdentity, port: int) -> None:
    async with connect(f"127.0.0.1:{port}") as channel:
        before, chain = await reported_certificate(channel), identity.certificate.chain.read_bytes()
        second = renew(authority, identity)
        identity.certificate.chain.write_bytes(chain)
        with capture_logs() as logs:
            assert await reported_certificate(channel) == before
        assert [line["event"] for line in logs if "certificate" in line["event"]] == ["renewed certificate rejected"]
        identity.certificate.chain.write_text(second)
        os.utime(identity.certificate.chain, (2, 2))
        assert (await reported_certificate(channel)).strip() == second.strip()


async def test_close_closes_replaced_channels(authority: Authority, identity: TlsIdentity, port: int) -> None:
    async with connect(f"127.0.0.1:{port}") as channel:
        assert isinstance(channel, RenewingChannel)
        before = channel.latest()
        staying: Any = rpc.ResponderServiceStub(channel).Respond(
            pb.RespondRequest(conversation=[Turn(text="stay")]), timeout=20
        )
        await staying.read()
        renew(authority, identity)
        await reported_certificate(channel)
    assert before.get_state() is channel.latest().get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert staying.done()
