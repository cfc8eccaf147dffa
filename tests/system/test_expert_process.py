"""Experts as separate processes."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_LOADABLE, MODEL_STATE_READY
from services.common.channel import dial

pytestmark = pytest.mark.slow

Start = Callable[..., Awaitable[Process]]


ROOT = Path(__file__).parents[2]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts expert modules on free ports; kills those that still run at the end of a test."""
    own = {
        "EXPERT_LISTEN": "127.0.0.1:0",
        "ARTIFACTS_URL": (tmp_path / "artifacts").as_uri(),
        "PYTHONPATH": str(tmp_path),
    }
    environment = {**os.environ, **own}

    async def start(*arguments: str, **settings: str) -> Process:
        command, variables = (sys.executable, "-m", *arguments), environment | settings
        process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=variables, cwd=ROOT)
        started.append(process)
        return process

    started: list[Process] = []
    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def write_expert(folder: Path, *, models: list[dict[str, str]], tasks: str) -> None:
    """Writes the files of an expert."""
    folder.mkdir(parents=True)
    (folder / "__main__.py").write_text(f"from experts.host.app import serve_expert\nserve_expert({folder.name!r})\n")
    (folder / "tasks.py").write_text(tasks)
    (folder / "models.json").write_text(json.dumps(models))


async def logged(process: Process, event: str) -> dict[str, Any]:
    """Waits for the log entry of an event."""
    lines: list[bytes] = []
    assert process.stderr
    async with asyncio.timeout(30):
        async for line in process.stderr:
            lines.append(line)
            entry: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {"event": ""}
            if entry["event"] == event:
                return entry
    pytest.fail(f"the process ended without {event!r}: {b''.join(lines).decode()}")


@asynccontextmanager
async def connect_when_ready(process: Process) -> AsyncIterator[grpc.aio.Channel]:
    """Connects to an expert once it is ready."""
    async with AsyncExitStack() as stack:
        port = (await logged(process, "serving"))["port"]
        await logged(process, "ready")
        yield await stack.enter_async_context(dial(f"127.0.0.1:{port}"))


@pytest.mark.parametrize("package", ["tests.support.uppercase_expert", "experts.lite"])
async def test_expert_becomes_ready_and_stops_on_signal(start: Start, package: str) -> None:
    process = await start(package)
    async with connect_when_ready(process) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        reply = await health.Check(health_pb2.HealthCheckRequest(), timeout=10, wait_for_ready=True)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        described = await rpc.ExpertServiceStub(channel).Describe(pb.DescribeRequest(), timeout=10)
        assert described.expert == package.rpartition(".")[2]
        assert {card.state for card in described.models} == {MODEL_STATE_READY}
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0


async def test_expert_may_offer_a_new_task(start: Start) -> None:
    async with connect_when_ready(await start("tests.support.uppercase_expert")) as channel:
        request = pb.InferRequest(
            task="text-shouting", inputs={"text": Value(text="hear me")}, parameters_json='{"marks":2}'
        )
        reply = await rpc.ExpertServiceStub(channel).Infer(request, timeout=10, wait_for_ready=True)
        assert reply.outputs["text"].text == "HEAR ME!!"


async def test_describe_option_prints_description_without_serving() -> None:
    command = (sys.executable, "-m", "tests.support.uppercase_expert", "--describe")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    described = json_format.Parse(output, pb.DescribeResponse())
    assert process.returncode == 0
    assert described.expert == "uppercase_expert"
    assert [spec.name for spec in described.tasks] == ["text-shouting"]
    assert [card.state for card in described.models] == [MODEL_STATE_LOADABLE]


async def test_expert_with_blocked_model_stops_on_signal(start: Start, tmp_path: Path) -> None:
    write_expert(
        tmp_path / "stuck",
        models=[{"id": "m", "task": "summarization"}],
        tasks="""
import atexit, sys, threading
def stuck(model_id, device):
    atexit.register(sys.stderr.write, '{"event": "teardown"}')
    sys.stderr.write('{"event": "stuck"}\\n')
    threading.Event().wait()
TASKS = {"summarization": stuck}
""",
    )
    process = await start("stuck")
    await logged(process, "stuck")
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        _, output = await process.communicate()
    assert process.returncode == 0
    assert b"stopping" in output
    assert b"teardown" not in output


async def test_inconsistent_expert_reports_the_error_and_exits(start: Start, tmp_path: Path) -> None:
    write_expert(tmp_path / "broken", models=[{"id": "m", "task": "text-singing"}], tasks="TASKS = {}")
    process = await start("broken")
    entry = await logged(process, "cannot run")
    assert "text-singing" in entry["error"]
    assert entry["remedy"]
    assert await process.wait() == 1


ECHO = """
from experts.host.handler import single

def echo(model_id, device):
    from .engine import speak
    return single(lambda inputs, parameters: {"text": speak(inputs["text"])})

TASKS = {"summarization": echo}
"""


def write_own(folder: Path) -> Path:
    """A folder with an expert and its model's code."""
    write_expert(folder, models=[{"id": "mine", "task": "summarization"}], tasks=ECHO)
    (folder / "engine.py").write_text("def speak(text):\n    return text[::-1]\n")
    return folder


async def summary(channel: grpc.aio.Channel, text: str) -> str:
    request = pb.InferRequest(task="summarization", inputs={"text": Value(text=text)})
    reply = await rpc.ExpertServiceStub(channel).Infer(request, timeout=20, wait_for_ready=True)
    return reply.outputs["text"].text


@pytest.mark.parametrize("workers", ["thread", "process"])
async def test_expert_folder_outside_the_project_is_served(start: Start, tmp_path: Path, workers: str) -> None:
    folder = write_own(tmp_path / "elsewhere" / "mine")
    process = await start("experts.host", str(folder), EXPERT_WORKERS=workers, PYTHONPATH="")
    async with connect_when_ready(process) as channel:
        assert await summary(channel, "live") == "evil"
        described = await rpc.ExpertServiceStub(channel).Describe(pb.DescribeRequest(), timeout=10)
        assert described.expert == "mine"
        assert [card.id for card in described.models] == ["mine"]
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("empty", False, "there is no tasks.py"),
        ("my-expert", True, "letters, digits and underscores"),
        ("json", True, "another module"),
    ],
)
async def test_invalid_expert_folder_reports_the_error(
    start: Start, tmp_path: Path, name: str, parts: bool, message: str
) -> None:
    folder = tmp_path / "elsewhere" / name
    folder.mkdir(parents=True)
    if parts:
        (folder / "tasks.py").touch()
    process = await start("experts.host", str(folder))
    async with asyncio.timeout(30):
        _, output = await process.communicate()
    assert process.returncode == 1
    assert message in output.decode()


async def test_only_allowed_models_are_served(start: Start) -> None:
    process = await start("tests.support.uppercase_expert", EXPERT_ALLOWED="other")
    entry = await logged(process, "cannot run")
    assert "allowed" in entry["error"]
    assert "EXPERT_ALLOWED" in entry["remedy"]
    assert await process.wait() == 1


async def test_active_call_finishes_before_the_process_stops(start: Start, tmp_path: Path) -> None:
    tasks = """
import sys, threading
from experts.host.handler import single

def slow(inputs, parameters):
    sys.stderr.write('{"event": "running"}\\n')
    threading.Event().wait(1)
    return {"text": "done"}
TASKS = {"summarization": lambda model_id, device: single(slow)}
"""
    write_expert(tmp_path / "slow", models=[{"id": "m", "task": "summarization"}], tasks=tasks)
    process = await start("slow")
    async with connect_when_ready(process) as channel:
        call = asyncio.create_task(summary(channel, "x"))
        await logged(process, "running")
        process.send_signal(signal.SIGTERM)
        await logged(process, "stopping")
        assert await call == "done"
        async with asyncio.timeout(20):
            assert await process.wait() == 0
