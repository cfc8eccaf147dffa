"""Services as separate processes with invalid configuration, and their logs."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 60.0
"""Seconds to wait for a log line, on a busy machine."""

_ADDRESSES = {
    "PLANNER_LISTEN": "127.0.0.1:0",
    "SELECTOR_LISTEN": "127.0.0.1:0",
    "ORCHESTRATOR_LISTEN": "127.0.0.1:0",
    "RESPONDER_LISTEN": "127.0.0.1:0",
    "GATEWAY_LISTEN": "127.0.0.1:0",
    "GATEWAY_HTTP_LISTEN": "127.0.0.1:0",
    "EXPERT_LISTEN": "127.0.0.1:0",
    "ORCHESTRATOR_PLANNER": "127.0.0.1:9",
    "ORCHESTRATOR_SELECTOR": "127.0.0.1:9",
    "ORCHESTRATOR_RESPONDER": "127.0.0.1:9",
    "GATEWAY_ORCHESTRATOR": "127.0.0.1:9",
    "GATEWAY_SELECTOR": "127.0.0.1:9",
    "PLANNER_SELECTOR": "127.0.0.1:9",
}


@dataclass
class StartedService:
    """A process and its log entries."""

    process: Process
    log: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    """Lines that are not log entries, such as a traceback."""

    async def until(self, event: str, **fields: object) -> dict[str, Any]:
        """Waits for the next log entry of an event with these fields."""
        assert self.process.stderr
        async with asyncio.timeout(SECONDS):
            async for line in self.process.stderr:
                entry = self._read(line)
                if entry.get("event") == event and fields.items() <= entry.items():
                    return entry
        raise AssertionError(f"it ended without {event}: {self.log} {self.other}")

    async def end(self) -> int:
        """Waits for the process to end and returns its exit status."""
        assert self.process.stderr
        async with asyncio.timeout(SECONDS):
            async for line in self.process.stderr:
                self._read(line)
            return await self.process.wait()

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [line for line in self.log if line["level"] in ("error", "critical")]

    def _read(self, line: bytes) -> dict[str, Any]:
        if not line.startswith(b"{"):
            self.other.append(line.decode())
            return {}
        entry: dict[str, Any] = json.loads(line)
        self.log.append(entry)
        return entry


@asynccontextmanager
async def start_service(home: Path, module: str, **environment: str) -> AsyncIterator[StartedService]:
    """Starts a service with its own home folder and no peers; kills it at exit."""
    entry = {**os.environ, **_ADDRESSES, "HUGGINGGPT_HOME": str(home), "LOG_FORMAT": "json", **environment}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, stderr=PIPE, env=entry)
    try:
        yield StartedService(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
