"""Progress display on standard error."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0
"""Interval of progress lines where standard error is not a terminal."""


class Progress:
    """Shows the active check and the seconds since it started.

    Args:
        console: console of standard error.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._check = ""
        self._start_time = time.monotonic()

    def begin(self, check: str) -> None:
        """Shows the check that starts now."""
        self._check, self._start_time = check, time.monotonic()
        if not self._console.is_terminal:
            self._print(check)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Updates the display until the block exits."""
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
        seconds = time.monotonic() - self._start_time
        return f"{self._check}: waiting for {seconds:.0f} s"

    def _print(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, soft_wrap=True)
