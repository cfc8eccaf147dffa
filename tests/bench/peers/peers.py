"""Processes of the programs compared with the orchestrator; they take requests on their standard input."""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec

from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.processes import Running, read_line, stop
from tests.bench.rows import median
from tests.bench.shapes import Script

FLOOR, POLLING = "asyncio", "polling"
PEERS = {FLOOR: "asyncio", "langgraph": "langgraph", POLLING: "threading"}
"""Required packages by program."""


class Peer:
    """A running program."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.running = Running(process.pid, "")

    async def run(self, *scripts: Script) -> Sequence[float]:
        """Runs scripts concurrently, and returns the seconds of each.

        Raises:
            RuntimeError: the program has exited.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([script.request for script in scripts]).encode() + b"\n")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the program exited during a run")
        taken: list[float] = json.loads(line)
        return taken

    async def median(self, script: Script, repeats: int) -> float:
        return median([(await self.run(script))[0] for _ in range(repeats)], digits=6)


@asynccontextmanager
async def running_peers(scripted: str) -> AsyncIterator[dict[str, Peer]]:
    """Starts the programs whose packages are installed, and yields them by name.

    Args:
        scripted: address of the scripted services.
    """
    async with AsyncExitStack() as stack:
        installed = [name for name, package in PEERS.items() if find_spec(package)]
        yield {name: await stack.enter_async_context(_peer(name, scripted)) for name in installed}


@asynccontextmanager
async def _peer(name: str, scripted: str) -> AsyncIterator[Peer]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"tests.bench.peers.with_{name}", scripted), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        await read_line(process)
        yield Peer(process)
    finally:
        await stop(process)
