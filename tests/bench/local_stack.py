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

from protos.hugginggpt.v1.gateway_pb2 import ListTasksRequest
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from services.common.channel import connect
from tests.bench.processes import PATIENCE_SECONDS, line, stopped
from tests.fakes import FakeExpert, card

TASK = "summarization"


@dataclass(frozen=True)
class House:
    """Where it answers, and how long it took to stand."""

    url: str
    grpc: str
    expert: str
    ready_seconds: float


@asynccontextmanager
async def standing(*, experts: str) -> AsyncIterator[House]:
    """`python -m services.local` on free ports with a home of its own, and the expert that does nothing beside it."""
    with TemporaryDirectory() as home:
        async with FakeExpert("noop", [card("noop", TASK)]).serving() as address:
            folder = Path(home) / "experts"
            folder.mkdir()
            (folder / "noop.address").write_text(address + "\n", encoding="utf-8")
            begun = time.perf_counter()
            process = await _started(experts, home)
            try:
                told = json.loads(await line(process))
                ready = time.perf_counter() - begun
                await _offered(told["grpc"])
                yield House(told["url"], told["grpc"], address, ready)
            finally:
                await stopped(process)


async def _started(experts: str, home: str) -> Process:
    anywhere = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.local",
        "--experts",
        experts,
        *anywhere,
        env={**os.environ, "HUGGINGGPT_HOME": home, "LOG_LEVEL": "WARNING"},
        stdout=PIPE,
        stderr=DEVNULL,
    )


async def _offered(gateway: str) -> None:
    """Waits until the expert's task can be planned."""
    async with asyncio.timeout(PATIENCE_SECONDS), connect(gateway) as channel:
        stub = GatewayServiceStub(channel)
        while True:
            listed = await stub.ListTasks(ListTasksRequest(), timeout=PATIENCE_SECONDS)
            if any("noop" in task.experts for task in listed.tasks):
                return
            await asyncio.sleep(0.05)
