"""Stalled readers use little memory, do not block others, and are disconnected."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from gateway.http import connection
from protos.hugginggpt.internal.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent, TaskEnded
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, TaskResult
from services.common.server import serving
from tests.fakes import ScriptedOrchestrator
from tests.support.gateway import start_gateway
from tests.support.watched_gateway import WatchedGateway, watched_gateway

pytestmark = pytest.mark.slow

MB = 2**20
READERS = 50
EVENTS = 80
LARGE = RunEvent(task_ended=TaskEnded(result=TaskResult(outputs={"text": Value(text="x" * (MB // 4))})))
END = RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED))

MAX_BYTES = 96 * MB
"""Maximum memory in bytes for all stalled readers, which requested 1 GB together."""
MAX_REMAINING_BYTES = 32 * MB
"""Maximum memory in bytes that remains afterwards."""

STALL_SECONDS = 2.0
SECONDS = 40.0


@contextmanager
def send_request(port: int, path: str, ahead: int = 4096) -> Iterator[socket.socket]:
    """A socket that has sent a request and whose receive buffer has `ahead` bytes."""
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ahead)
        reader.connect(("127.0.0.1", port))
        reader.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
        yield reader


async def peak_until_released(gateway: WatchedGateway, files: int) -> int:
    """Highest memory in bytes until no more than `files` files are open."""
    most, deadline = 0, time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        held = await gateway.resources()
        most = max(most, held.bytes)
        if held.files <= files:
            return most
    raise AssertionError(f"{held.files - files} files are still open after {SECONDS} s")


async def event_count(url: str) -> int:
    """Number of events that another reader receives."""
    async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as client, client.stream("GET", url) as response:
        return len([line async for line in response.aiter_lines() if line.startswith("id: ")])


async def test_stalled_readers_are_disconnected(tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(script=(LARGE,) * EVENTS)
    register = partial(orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server, orchestrator)
    service = orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"]
    async with (
        serving(register, service) as running,
        watched_gateway(tmp_path, f"127.0.0.1:{running.port}", STALL_SECONDS) as gateway,
    ):
        url = f"http://127.0.0.1:{gateway.http_port}/v1/runs"
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.post(url, json={"request": "much"})).status_code == 202
        before = await gateway.resources()
        with ExitStack() as readers:
            for _ in range(READERS):
                readers.enter_context(send_request(gateway.http_port, "/v1/runs/run_1/events"))
            at_once = await gateway.until(lambda held: held.files >= before.files + READERS, SECONDS)
            assert at_once.files >= before.files + READERS
            orchestrator.runs["run_1"].send(END)
            assert await event_count(f"{url}/run_1/events") == EVENTS + 2
            most = await peak_until_released(gateway, before.files + 2)
        after = await gateway.until(lambda held: held.tasks <= before.tasks, SECONDS)
    assert most - before.bytes <= MAX_BYTES
    assert after.bytes - before.bytes <= MAX_REMAINING_BYTES
    assert after.tasks <= before.tasks


async def test_slow_reader_gets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 1.0)
    async with start_gateway(tmp_path, ScriptedOrchestrator(script=((LARGE,) * EVENTS) + (END,))) as gateway:
        await gateway.ask()
        with send_request(gateway.http_port, "/v1/runs/run_1/events", 128 * 1024) as slow:
            slow.setblocking(False)
            loop, content = asyncio.get_running_loop(), b""
            async with asyncio.timeout(SECONDS):
                for _ in range(60):  # three times as long as the stall timeout
                    content += await loop.sock_recv(slow, 64 * 1024)
                    await asyncio.sleep(0.05)
                while b"event: run_ended" not in content[-MB:]:
                    received = await loop.sock_recv(slow, MB)
                    assert received, "it was cut off"
                    content += received
    assert content.count(b"event: task_ended") == EVENTS
