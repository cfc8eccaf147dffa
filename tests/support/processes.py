"""Services and programs as separate processes."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Start = Callable[..., Awaitable[Process]]
"""Starts Python with arguments, and with settings in addition to this process's environment."""


@asynccontextmanager
async def processes(seconds: float) -> AsyncIterator[Start]:
    """Yields a function that starts programs; kills those that still run at exit. Times out after `seconds`."""
    started: list[Process] = []

    async def start(*arguments: str, **settings: str) -> Process:
        own = {**os.environ, "DRAIN_SECONDS": "1", **settings}
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, stderr=PIPE, env=own)
        started.append(process)
        return process

    try:
        async with asyncio.timeout(seconds):
            yield start
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.kill()
        for process in started:
            await process.wait()
