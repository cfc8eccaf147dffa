"""Log entries of a process under test."""

import json
from asyncio.subprocess import Process
from typing import Any

import pytest


async def logged(process: Process, event: str) -> dict[str, Any]:
    """Waits for the log entry of an event; the caller sets a timeout."""
    assert process.stderr
    async for line in process.stderr:
        entry: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
        if entry.get("event") == event:
            return entry
    pytest.fail(f"the process ended without {event!r}")
