"""Progress of the checks, on standard error."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0
"""Where standard error is no terminal."""


class Progress:
    """Names the present check, and how long it has been waited for.

    Args:
        console: standard error.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._check = ""
        self._began = time.monotonic()

    def begin(self, check: str) -> None:
        """The next check starts."""
        self._check, self._began = check, time.monotonic()
        if not self._console.is_terminal:
            self._print(check)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Shows the progress within the block."""
        task = asyncio.create_task(self._run(), name="progress")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        if not self._console.is_terminal:
            while True:
                await asyncio.sleep(SECONDS_BETWEEN_LINES)
                self._print(self._text())
        with self._console.status("") as status:
            while True:
                status.update(self._text())
                await asyncio.sleep(0.5)

    def _text(self) -> str:
        waited = time.monotonic() - self._began
        return f"{self._check}: waiting for {waited:.0f} s"

    def _print(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, soft_wrap=True)
