"""Runs and their event streams lose nothing if a process is killed."""

import asyncio
import json
import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from tests.fakes import FakeExpert, card
from tests.support.corrupted_files import DATA
from tests.system.conftest import LocalStack, eventually, start_local_stack

pytestmark = pytest.mark.slow

SECONDS = 60
REQUEST = "Read the text in each of these images aloud"


@pytest.mark.parametrize("name", ["services", "orchestrator-1"])
async def test_run_and_stream_survive_a_killed_process(
    local_stack: LocalStack, http: httpx.AsyncClient, name: str
) -> None:
    files: list[tuple[str, Any]] = [("file", (f"{n}.png", (DATA / "sign.png").read_bytes())) for n in range(3)]
    spec = json.dumps({"request": REQUEST, "bypass_memo": True})
    run_id = (await http.post("/v1/runs", files=[("spec", (None, spec)), *files])).json()["run_id"]
    events: list[dict[str, Any]] = []
    alive = [local_stack.children[name]]
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
    """Continues reading after the last event; kills the given process once a task has started."""
    last = {"last-event-id": str(events[-1]["sequence"])} if events else {}
    async with http.stream("GET", f"/v1/runs/{run_id}/events", headers=last) as reply:
        async for line in reply.aiter_lines():
            if line.startswith("data:"):
                events.append(json.loads(line.removeprefix("data:")))
                if "task_started" in events[-1] and alive:
                    os.kill(alive.pop(), signal.SIGKILL)


class SlowExpert:
    """An expert whose second task blocks until the test releases it."""

    def __init__(self) -> None:
        self.called: asyncio.Queue[str] = asyncio.Queue()
        self.release = asyncio.Event()
        self.expert = FakeExpert("slow", [card("slow", "summarization")], answer=self._answer)

    async def until_called(self) -> None:
        async with asyncio.timeout(SECONDS):
            while await self.called.get() != "one.":
                pass

    async def _answer(self, request: InferRequest) -> dict[str, Value]:
        text = request.inputs["text"].text
        self.called.put_nowait(text)
        if text == "one.":
            await self.release.wait()
        return {"text": Value(text=text + ".")}


@pytest.mark.parametrize("orchestrators", [1, 2])
async def test_open_stream_continues_after_its_orchestrator_is_killed(tmp_path: Path, orchestrators: int) -> None:
    slow = SlowExpert()
    async with slow.expert.serving() as address:
        (tmp_path / "experts").mkdir()
        (tmp_path / "experts" / "slow.address").write_text(address + "\n", "utf-8")
        options = ("--experts", "", "--orchestrators", str(orchestrators))
        with start_local_stack(tmp_path, *options, ORCHESTRATOR_LEASE_SECONDS="4") as local_stack:
            async with httpx.AsyncClient(base_url=local_stack.url, timeout=SECONDS, trust_env=False) as http:
                await asyncio.to_thread(eventually, lambda: "summarization" in local_stack.run_cli("tasks").out)
                run_id = await slow_run(http)
                events: list[dict[str, Any]] = []
                watching = asyncio.create_task(watch_to_the_end(http, run_id, events))
                await slow.until_called()
                await asyncio.to_thread(eventually, lambda: has_event(events, "task_started", 2))
                os.kill(owner(local_stack, run_id), signal.SIGKILL)
                await slow.until_called()
                slow.release.set()
                async with asyncio.timeout(SECONDS):
                    streams = await watching
    assert streams == 1
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert [event["task_id"] for event in events if "task_ended" in event] == [1, 2, 3]
    assert sum("taken_over" in event for event in events) == 1
    assert events[-1]["run_ended"]["state"] == "completed"
    calls = Counter(request.inputs["text"].text for request in slow.expert.requests)
    assert calls == {"one": 1, "one.": 2, "one..": 1}


def has_event(events: list[dict[str, Any]], kind: str, task_id: int) -> bool:
    """Whether an event was received; it and all earlier events are stored then."""
    return any(kind in event and event["task_id"] == task_id for event in events)


async def slow_run(http: httpx.AsyncClient) -> str:
    """Starts a run of three consecutive tasks and returns its id."""
    texts: list[Any] = ["one", {"task_id": 1, "output": "text"}, {"task_id": 2, "output": "text"}]
    plan = [{"id": number, "task": "summarization", "args": {"text": text}} for number, text in enumerate(texts, 1)]
    reply = await http.post("/v1/runs", json={"plan": plan, "mode": "results"})
    assert reply.status_code == 202, reply.text
    return str(reply.json()["run_id"])


async def watch_to_the_end(http: httpx.AsyncClient, run_id: str, events: list[dict[str, Any]]) -> int:
    """Reads a run's events to the end and returns the number of streams needed."""
    streams = 0
    while not (events and "run_ended" in events[-1]):
        streams += 1
        await watch(http, run_id, events, [])
    return streams


def owner(local_stack: LocalStack, run_id: str) -> int:
    """Process id of a run's owner."""
    with closing(sqlite3.connect(f"file:{local_stack.home / 'journal.sqlite'}?mode=ro", uri=True)) as journal:
        (name,) = journal.execute("SELECT owner FROM runs WHERE id = ?", (run_id,)).fetchone()
    return int(name.rsplit("-", 2)[1])
