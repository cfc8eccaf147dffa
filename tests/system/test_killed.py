"""What a run and its watcher see of a part of the house that is killed in the middle of it: nothing is lost."""

import asyncio
import json
import os
import signal
from collections import Counter
from typing import Any

import httpx
import pytest

from tests.spoilt import DATA
from tests.system.conftest import House

SECONDS = 60
REQUEST = "Read the text in each of these images aloud"


@pytest.mark.parametrize("name", ["light", "orchestrator-1"])
async def test_a_run_survives_whoever_is_killed(house: House, http: httpx.AsyncClient, name: str) -> None:
    files: list[tuple[str, Any]] = [("file", (f"{n}.png", (DATA / "sign.png").read_bytes())) for n in range(3)]
    run_id = (await http.post("/v1/runs", files=[("request", (None, REQUEST)), *files])).json()["run_id"]
    events: list[dict[str, Any]] = []
    alive = [house.children[name]]
    async with asyncio.timeout(SECONDS):
        while not (events and "run_ended" in events[-1]):
            try:
                await watch(http, run_id, events, alive)
            except httpx.TransportError:
                await asyncio.sleep(0.1)  # the gateway is being restarted
    assert not alive
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["run_ended"]["state"] == "completed"
    ends = Counter(event["task_id"] for event in events if "task_ended" in event)
    assert ends == dict.fromkeys(range(1, 7), 1)


async def watch(http: httpx.AsyncClient, run_id: str, events: list[dict[str, Any]], alive: list[int]) -> None:
    """Reads on after what was read; kills who is still alive once a task has started."""
    last = {"last-event-id": str(events[-1]["sequence"])} if events else {}
    async with http.stream("GET", f"/v1/runs/{run_id}/events", headers=last) as reply:
        async for line in reply.aiter_lines():
            if line.startswith("data:"):
                events.append(json.loads(line.removeprefix("data:")))
                if "task_started" in events[-1] and alive:
                    os.kill(alive.pop(), signal.SIGKILL)
