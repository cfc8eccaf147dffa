"""A real house for the benchmark: all processes, and one expert of ours that does nothing."""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from protos.hugginggpt.v1.selector_pb2 import ListTasksRequest
from services.runtime.channel import connect
from tests.fakes import FakeExpert, card

TASK = "summarization"
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class House:
    """Where it answers, and how long it took to stand."""

    url: str
    grpc: str
    expert: str
    ready_seconds: float
    children: dict[str, int]


@asynccontextmanager
async def standing(*, experts: str) -> AsyncIterator[House]:
    """`python -m services` on free ports with a home of its own, and the expert that does nothing beside it."""
    with TemporaryDirectory() as home:
        async with FakeExpert("noop", [card("noop", TASK)]).serving() as address:
            folder = Path(home) / "experts"
            folder.mkdir()
            (folder / "noop.address").write_text(address + "\n", encoding="utf-8")
            begun = time.perf_counter()
            process = await _started(
                "services", "--experts", experts, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", home=home
            )
            try:
                line = json.loads(await _line(process))
                ready = time.perf_counter() - begun
                await _offered(line["grpc"])
                yield House(line["url"], line["grpc"], address, ready, line["children"])
            finally:
                await _stopped(process)


@asynccontextmanager
async def alone(module: str, prefix: str) -> AsyncIterator[int]:
    """One service by itself; gives its process id once it serves."""
    listening = {f"{prefix}_LISTEN": "127.0.0.1:0", "GATEWAY_HTTP_LISTEN": "127.0.0.1:0"}
    with TemporaryDirectory() as home:
        process = await _started(module, home=home, listening=listening)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert process.stderr
                while b'"serving"' not in await process.stderr.readline():
                    pass
            yield process.pid
        finally:
            await _stopped(process)


async def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB of 10^6 bytes."""
    process = await asyncio.create_subprocess_exec("ps", "-o", "rss=", "-p", str(pid), stdout=PIPE)
    output, _ = await process.communicate()
    return int(output) * 1024 / 1e6


async def _started(module: str, *arguments: str, home: str, listening: dict[str, str] | None = None) -> Process:
    environment = {**os.environ, "HUGGINGGPT_HOME": home, "LOG_LEVEL": "INFO" if listening else "WARNING"}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        env={**environment, **(listening or {})},
        stdout=PIPE,
        stderr=PIPE if listening else DEVNULL,
    )


async def _line(process: Process) -> bytes:
    assert process.stdout
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await process.stdout.readline()


async def _stopped(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.communicate()


async def _offered(gateway: str) -> None:
    """Waits until the expert's task can be planned."""
    async with asyncio.timeout(PATIENCE_SECONDS), connect(gateway) as channel:
        stub = GatewayServiceStub(channel)
        while True:
            listed = await stub.ListTasks(ListTasksRequest(), timeout=PATIENCE_SECONDS)
            if any("noop" in task.experts for task in listed.tasks):
                return
            await asyncio.sleep(0.05)
