"""Others who run the cast's plans: each a program of its own, asked over its input."""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec

from tests.bench.load import PATIENCE_SECONDS
from tests.bench.processes import Running, line, stopped
from tests.bench.rows import median
from tests.bench.shapes import Script

FLOOR, POLLING = "asyncio", "polling"
PEERS = {FLOOR: "asyncio", "langgraph": "langgraph", POLLING: "threading"}
"""The package that each needs, by the name of its program."""


class Peer:
    """One of them, at work."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.running = Running(process.pid, "")

    async def run(self, *scripts: Script) -> Sequence[float]:
        """Seconds of each, all at once.

        Raises:
            RuntimeError: it has ended.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([script.words for script in scripts]).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            said = await self._process.stdout.readline()
        if not said:
            raise RuntimeError("a rival has ended in the middle of a run")
        taken: list[float] = json.loads(said)
        return taken

    async def median(self, script: Script, repeats: int) -> float:
        return median([(await self.run(script))[0] for _ in range(repeats)], digits=6)


@asynccontextmanager
async def attending(cast: str) -> AsyncIterator[dict[str, Peer]]:
    """All of them that are installed, by name.

    Args:
        cast: its address.
    """
    async with AsyncExitStack() as stack:
        there = [name for name, package in PEERS.items() if find_spec(package)]
        yield {name: await stack.enter_async_context(_peer(name, cast)) for name in there}


@asynccontextmanager
async def _peer(name: str, cast: str) -> AsyncIterator[Peer]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"tests.bench.peers.with_{name}", cast), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        await line(process)
        yield Peer(process)
    finally:
        await stopped(process)
