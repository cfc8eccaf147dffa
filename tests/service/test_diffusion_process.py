"""The diffusion expert as a separate process, with tiny weights under the model ids of its cards."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from experts.diffusion.tasks import TASKS
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from tests.support.logs import logged
from tests.tiny import TENANT
from tests.tiny.diffusion import build_stable_diffusion

_MODEL = "stable-diffusion-v1-5/stable-diffusion-v1-5"

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    folder = tmp_path / "models" / _MODEL
    folder.mkdir(parents=True)
    build_stable_diffusion(folder)
    environment = {
        "EXPERT_LISTEN": "127.0.0.1:0",
        "EXPERT_MODELS_URL": str(tmp_path / "models"),
        "ARTIFACTS_URL": (tmp_path / "artifacts").as_uri(),
        "HF_HUB_OFFLINE": "1",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "experts.diffusion",
        stderr=PIPE,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
    )
    yield process
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def test_process_serves_describe_and_infer_and_stops_on_sigterm(process: Process, tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        port = (await logged(process, "serving"))["port"]
        await logged(process, "ready")
        async with dial(f"127.0.0.1:{port}") as channel:
            stub = rpc.ExpertServiceStub(channel)
            described = await stub.Describe(pb.DescribeRequest(), timeout=10, wait_for_ready=True)
            assert {spec.name for spec in described.tasks} == set(TASKS)
            request = pb.InferRequest(
                task="text-to-image",
                model=_MODEL,
                inputs={"text": Value(text="a castle")},
                parameters_json='{"num_inference_steps":2}',
            )
            with call_context.use_caller(Caller(tenant=TENANT)):
                reply = await stub.Infer(request, timeout=60, metadata=call_context.metadata())
        picture = reply.outputs["image"].artifact
        content = await ArtifactStore.open((tmp_path / "artifacts").as_uri()).get(TENANT, picture.sha256)
        assert content.startswith(b"\x89PNG")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
