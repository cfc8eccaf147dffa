"""The local stack, `python -m services.local`, with an additional expert that returns at once."""

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

from protos.hugginggpt.v1.gateway_pb2 import ListTasksRequest
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from services.common.channel import connect
from tests.bench.processes import TIMEOUT_SECONDS, read_line, stop
from tests.fakes import FakeExpert, card

TASK = "summarization"


@dataclass(frozen=True)
class LocalStack:
    """A running local stack.

    Attributes:
        url: of the gateway's HTTP API.
        grpc: host:port of the gateway's gRPC API.
        expert: host:port of the expert that returns at once.
        ready_seconds: from the start of the process until it was ready.
    """

    url: str
    grpc: str
    expert: str
    ready_seconds: float


@asynccontextmanager
async def start_local_stack(*, experts: str) -> AsyncIterator[LocalStack]:
    """Starts the local stack on free ports with a temporary home, once the additional expert's task can be planned."""
    with TemporaryDirectory() as home:
        async with FakeExpert("noop", [card("noop", TASK)]).serving() as address:
            folder = Path(home) / "experts"
            folder.mkdir()
            (folder / "noop.address").write_text(address + "\n", encoding="utf-8")
            started = time.perf_counter()
            process = await _start(experts, home)
            try:
                addresses = json.loads(await read_line(process))
                ready = time.perf_counter() - started
                await _wait_for_task(addresses["grpc"])
                yield LocalStack(addresses["url"], addresses["grpc"], address, ready)
            finally:
                await stop(process)


async def _start(experts: str, home: str) -> Process:
    free_ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.local",
        "--experts",
        experts,
        *free_ports,
        env={**os.environ, "HUGGINGGPT_HOME": home, "LOG_LEVEL": "WARNING"},
        stdout=PIPE,
        stderr=DEVNULL,
    )


async def _wait_for_task(gateway: str) -> None:
    """Waits until the gateway lists the task of the additional expert."""
    async with asyncio.timeout(TIMEOUT_SECONDS), connect(gateway) as channel:
        stub = GatewayServiceStub(channel)
        while True:
            listed = await stub.ListTasks(ListTasksRequest(), timeout=TIMEOUT_SECONDS)
            if any("noop" in task.experts for task in listed.tasks):
                return
            await asyncio.sleep(0.05)
