"""Client that makes a run at the gateway and records when each kind of event arrives."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class RunTimings:
    """Times and result of a run.

    Attributes:
        first: seconds from the request to the first event of each kind.
        tasks: number of planned tasks.
        ended: the event run_ended.
    """

    first: dict[str, float] = field(default_factory=dict)
    tasks: int = 0
    ended: Mapping[str, Any] = field(default_factory=dict)

    @property
    def soonest(self) -> float:
        return min(self.first.values())

    @property
    def tokens(self) -> tuple[int, int]:
        """Input and output tokens of LLMs."""
        usage = self.ended.get("usage", {})
        return usage.get("input_tokens", 0), usage.get("output_tokens", 0)


async def run(client: httpx.AsyncClient, body: Mapping[str, Any]) -> RunTimings:
    """Makes a run, and reads its events to the last.

    Raises:
        RuntimeError: the run did not complete.
    """
    timings, started, kind = RunTimings(), time.perf_counter(), ""
    headers = {"Accept": "text/event-stream"}
    async with client.stream("POST", "/v1/runs", json=body, headers=headers) as reply:
        async for line in reply.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
                timings.first.setdefault(kind, time.perf_counter() - started)
                timings.tasks += kind == "task_planned"
            elif kind == "run_ended" and line.startswith("data: "):
                timings.ended = json.loads(line.removeprefix("data: "))["run_ended"]
    if timings.ended.get("state") != "completed":
        raise RuntimeError(f"a run of the benchmark failed: {reply.status_code} {timings.ended}")
    return timings
