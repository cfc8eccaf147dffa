"""A gateway in a separate process that reports its resources.

Run as a module, it serves with its settings, prints its ports, and prints its resources for each line of input.
"""

import asyncio
import ctypes
import gc
import json
import resource
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.__main__ import gateway as serve_gateway
from gateway.http import protocol
from gateway.settings import Settings
from services.common import logging
from tests.service.test_gateway_process import environment

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Held:
    """Resources of a process."""

    files: int
    tasks: int
    bytes: int
    """Resident memory in bytes."""


@dataclass(frozen=True)
class WatchedGateway:
    """A running gateway process."""

    http_port: int
    grpc_port: int
    process: asyncio.subprocess.Process

    async def held(self) -> Held:
        """Resources after a garbage collection."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        return Held(**await _told(self.process))

    async def until(self, settled: Callable[[Held], bool], seconds: float) -> Held:
        """Waits until the resources satisfy a condition, or the time is over, and returns them."""
        held = await self.held()
        try:
            async with asyncio.timeout(seconds):
                while not settled(held):
                    await asyncio.sleep(0.1)
                    held = await self.held()
        except TimeoutError:
            pass
        return held


@asynccontextmanager
async def watched_gateway(folder: Path, orchestrator: str, stall_seconds: float = 30) -> AsyncIterator[WatchedGateway]:
    """Starts a gateway with the orchestrator's address and the timeout in seconds for clients that do not read."""
    settings = environment(folder, GATEWAY_ORCHESTRATOR=orchestrator, LOG_LEVEL="ERROR", PYTHONPATH=str(ROOT))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.watched_gateway", str(stall_seconds)),
        cwd=ROOT,
        env=settings,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield WatchedGateway(**await _told(process), process=process)
    finally:
        process.terminate()
        await process.wait()


async def _told(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout
    async with asyncio.timeout(ANSWER_SECONDS):
        told: dict[str, Any] = json.loads(await process.stdout.readline())
    return told


def _held() -> Held:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # returns memory that the allocator has cached
    if trim:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Held(len(list(Path("/proc/self/fd").iterdir())), len(asyncio.all_tasks()), pages * resource.getpagesize())


async def _serve() -> None:
    asked = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    settings = Settings()
    logging.setup("gateway", level=settings.log_level)
    async with serve_gateway(settings) as running:
        print(json.dumps({"http_port": running.http_port, "grpc_port": running.grpc.port}), flush=True)
        while await asked.readline():
            print(json.dumps(vars(_held())), flush=True)


if __name__ == "__main__":
    protocol.STALL_SECONDS = float(sys.argv[1])
    asyncio.run(_serve())
