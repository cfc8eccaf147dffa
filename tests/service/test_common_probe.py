"""The health probe as a command-line program."""

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from services.common.server import serving

RESPONDER = pb.DESCRIPTOR.services_by_name["ResponderService"]


async def probe(*arguments: str) -> tuple[int, str]:
    """Exit status and output."""
    command = [sys.executable, "-m", "services.common.probe", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    _, output = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.parametrize("name", ["", "readiness", "liveness", "startup", RESPONDER.full_name])
async def test_healthy_server_exits_with_zero_and_prints_nothing(name: str) -> None:
    async with serving(lambda _: None, RESPONDER) as running:
        assert await probe(f"127.0.0.1:{running.port}", name) == (0, "")


async def test_server_that_is_not_ready_fails_readiness_but_not_liveness() -> None:
    async with serving(lambda _: None, RESPONDER, ready=False) as running:
        address = f"127.0.0.1:{running.port}"
        assert await probe(address, "readiness") == (1, f"{address}: readiness is NOT_SERVING\n")
        assert await probe(address, "liveness") == (0, "")


async def test_absent_server_and_unknown_name_are_reported_in_one_line() -> None:
    async with serving(lambda _: None, RESPONDER) as running:
        status, output = await probe(f"127.0.0.1:{running.port}", "nonsense")
    assert status == 1
    assert output.count("\n") == 1
    assert "unknown service 'nonsense'" in output
    status, output = await probe(f"127.0.0.1:{running.port}")
    assert status == 1
    assert output.count("\n") == 1
    assert "UNAVAILABLE" in output
