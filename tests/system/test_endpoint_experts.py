"""Experts for remote endpoints, as separate processes."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from google.protobuf import json_format

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL
from tests.system.test_expert_process import Start, connect_when_ready, start

pytestmark = pytest.mark.slow

__all__ = ["start"]


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "REMOTE_ENDPOINTS", "LLM_BASE_URL", "EXPERT_LLM_BASE_URL", "EXPERT_SERVED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HUGGINGGPT_HOME", str(tmp_path))


@pytest.mark.parametrize("package", ["experts.llm", "experts.remote", "experts.served"])
async def test_endpoint_expert_starts_without_configuration_and_stops_on_signal(start: Start, package: str) -> None:
    process = await start(package)
    async with connect_when_ready(process) as channel:
        described = await rpc.ExpertServiceStub(channel).Describe(pb.DescribeRequest(), timeout=10, wait_for_ready=True)
        assert described.expert == package.rpartition(".")[2]
        assert {card.location for card in described.models} <= {MODEL_LOCATION_EXTERNAL}
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0


@pytest.mark.parametrize("package", ["experts.llm", "experts.remote", "experts.served"])
async def test_endpoint_expert_describe_prints_only_json(package: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", package, "--describe", stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(30):
        output, errors = await process.communicate()
    assert json_format.Parse(output, pb.DescribeResponse()).expert == package.rpartition(".")[2]
    assert any(setting in errors for setting in (b"LLM_BASE_URL", b"HF_TOKEN", b"EXPERT_SERVED"))
