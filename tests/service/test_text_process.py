"""The process of python -m experts.text: start, description, calls with tiny weights under real ids, shutdown."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format

from experts.text.tasks import TASKS
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Value
from services.common import errors
from services.common.channel import dial
from tests.tiny import TinyModels

pytestmark = pytest.mark.slow

SENTIMENT = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"
NAMES = "dslim/bert-base-NER"


@asynccontextmanager
async def start_process(folder: Path, models: Path) -> AsyncIterator[tuple[Process, str]]:
    """Starts the expert as a process; yields it with its address."""
    settings = {
        "EXPERT_LISTEN": "127.0.0.1:0",
        "EXPERT_MODELS_URL": str(models),
        "ARTIFACTS_URL": (folder / "artifacts").as_uri(),
        "HF_HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
    }
    command = (sys.executable, "-m", "experts.text")
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env={**os.environ, **settings})
    try:
        yield process, f"127.0.0.1:{await _port(process)}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _port(process: Process) -> int:
    assert process.stderr
    async with asyncio.timeout(60):
        async for line in process.stderr:
            entry = json.loads(line) if line.startswith(b"{") else {}
            if entry.get("event") == "serving":
                return int(entry["port"])
    pytest.fail("the process ended")


async def test_process_serves_its_cards_and_reports_a_missing_model(tiny_models: TinyModels, tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / SENTIMENT).parent.mkdir(parents=True)
    (models / SENTIMENT).symlink_to(tiny_models.build("text", "tiny/sentiment"))
    async with start_process(tmp_path, models) as (process, address), dial(address) as channel:
        stub = rpc.ExpertServiceStub(channel)
        description = await stub.Describe(pb.DescribeRequest(), timeout=30, wait_for_ready=True)
        assert {card.task for card in description.models} == TASKS.keys()
        assert {spec.name for spec in description.tasks} == TASKS.keys()

        async def infer(task: str) -> pb.InferResponse:
            request = pb.InferRequest(task=task, inputs={"text": Value(text="a good film")})
            return await stub.Infer(request, timeout=60)

        reply = await infer("text-classification")
        assert reply.outputs["text"].text == "positive"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await infer("token-classification")
        error = errors.from_rpc(caught.value)
        assert error.reason == "LOAD_FAILED"
        assert NAMES in error.message
        assert "HF_HUB_OFFLINE" in error.message
        assert "EXPERT_MODELS_URL" in error.remedy
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0


async def test_describe_does_not_import_torch() -> None:
    program = (
        "import runpy, sys; sys.argv[1:] = ['--describe']; runpy.run_module('experts.text', run_name='__main__'); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=PIPE)
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode == 0
    description = json_format.Parse(output, pb.DescribeResponse())
    assert len(description.tasks) == len(TASKS)
