"""What a process under test has logged."""

import json
from asyncio.subprocess import Process
from typing import Any

import pytest


async def logged(process: Process, event: str) -> dict[str, Any]:
    """The log entry of an event that has come or will come; whoever waits for it sets the bound."""
    assert process.stderr
    async for line in process.stderr:
        entry: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
        if entry.get("event") == event:
            return entry
    pytest.fail(f"the process ended without {event!r}")
