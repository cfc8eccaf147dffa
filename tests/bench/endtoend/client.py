"""One who asks the gateway for a run, and notes when each kind of event comes."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Told:
    """What came of a run; times in seconds from asking."""

    first: dict[str, float] = field(default_factory=dict)
    """When the first event of each kind was there."""
    tasks: int = 0
    """That were planned."""
    ended: Mapping[str, Any] = field(default_factory=dict)

    @property
    def soonest(self) -> float:
        return min(self.first.values())

    @property
    def tokens(self) -> tuple[int, int]:
        """Into LLMs, and out of them."""
        usage = self.ended.get("usage", {})
        return usage.get("input_tokens", 0), usage.get("output_tokens", 0)


async def ask(client: httpx.AsyncClient, body: Mapping[str, Any]) -> Told:
    """Starts a run and reads its events to the last.

    Raises:
        RuntimeError: it did not complete.
    """
    told, begun, kind = Told(), time.perf_counter(), ""
    headers = {"Accept": "text/event-stream"}
    async with client.stream("POST", "/v1/runs", json=body, headers=headers) as reply:
        async for line in reply.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
                told.first.setdefault(kind, time.perf_counter() - begun)
                told.tasks += kind == "task_planned"
            elif kind == "run_ended" and line.startswith("data: "):
                told.ended = json.loads(line.removeprefix("data: "))["run_ended"]
    if told.ended.get("state") != "completed":
        raise RuntimeError(f"a run of the benchmark failed: {reply.status_code} {told.ended}")
    return told
