"""Services and programs as processes of their own."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Start = Callable[..., Awaitable[Process]]
"""Starts Python with arguments, and with settings over those of this process."""


@asynccontextmanager
async def processes(seconds: float) -> AsyncIterator[Start]:
    """Starts programs; kills those that the block leaves behind, which has so long."""
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
