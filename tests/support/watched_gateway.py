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
from gateway.http import connection
from gateway.settings import Settings
from services.common import logging
from tests.service.test_gateway_process import environment

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Resources:
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

    async def resources(self) -> Resources:
        """Resources after a garbage collection."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        return Resources(**await _read_json(self.process))

    async def until(self, is_settled: Callable[[Resources], bool], seconds: float) -> Resources:
        """Waits until the resources satisfy a condition, or the time is over, and returns them."""
        resources = await self.resources()
        try:
            async with asyncio.timeout(seconds):
                while not is_settled(resources):
                    await asyncio.sleep(0.1)
                    resources = await self.resources()
        except TimeoutError:
            pass
        return resources


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
        yield WatchedGateway(**await _read_json(process), process=process)
    finally:
        process.terminate()
        await process.wait()


async def _read_json(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout
    async with asyncio.timeout(ANSWER_SECONDS):
        message: dict[str, Any] = json.loads(await process.stdout.readline())
    return message


def _resources() -> Resources:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # returns memory that the allocator has cached
    if trim:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Resources(
        len(list(Path("/proc/self/fd").iterdir())), len(asyncio.all_tasks()), pages * resource.getpagesize()
    )


async def _serve() -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    settings = Settings()
    logging.setup("gateway", level=settings.log_level)
    async with serve_gateway(settings) as running:
        print(json.dumps({"http_port": running.http_port, "grpc_port": running.grpc.port}), flush=True)
        while await commands.readline():
            print(json.dumps(vars(_resources())), flush=True)


if __name__ == "__main__":
    connection.STALL_SECONDS = float(sys.argv[1])
    asyncio.run(_serve())
