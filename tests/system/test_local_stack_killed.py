"""A batch during which the whole local stack is killed and restarted has the results of an undisturbed one."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.system.conftest import LocalStack, eventually, start_local_stack

pytestmark = pytest.mark.slow

ITEMS = 400
PLAN = [
    {
        "id": 1,
        "task": "text-classification",
        "pinned_model": "vaderSentiment",
        "arguments": {"text": {"input": "text"}},
    }
]


def item(number: int) -> dict[str, Any]:
    """An item: some lack their text and fail validation; some have an empty one and fail at the expert."""
    text = "" if number % 23 == 0 else f"Note {number} is {'good' if number % 2 else 'bad'}."
    return {"name": f"note {number}", "inputs": [{"name": "text", "text": text}] if number % 17 else []}


class Client:
    """Client of the gateway's batch routes."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def start(self) -> str:
        spec = {"plan": PLAN, "max_at_once": 8, "bypass_memo": True}
        batch = {**spec, "items": [item(number) for number in range(1, ITEMS + 1)]}
        return str(self._http.post("/v1/pipeline-batches", json=batch).raise_for_status().json()["batch_id"])

    def resume(self, batch_id: str) -> None:
        self._http.post(f"/v1/pipeline-batches/{batch_id}/resume").raise_for_status()

    def batch(self, batch_id: str) -> Any:
        return self._http.get(f"/v1/pipeline-batches/{batch_id}").raise_for_status().json()

    def lines(self, batch_id: str) -> list[dict[str, Any]]:
        """The batch's results, once it has ended."""
        eventually(lambda: bool(self.batch(batch_id).get("end_time")), 60)
        text = self._http.get(f"/v1/pipeline-batches/{batch_id}/results").raise_for_status().text
        return [json.loads(line) for line in text.splitlines()]

    def completed(self, batch_id: str) -> Mapping[int, str]:
        """Run ids of completed items, by index."""
        url = f"/v1/pipeline-batches/{batch_id}/items?state=completed&page_size={ITEMS}"
        found = self._http.get(url).raise_for_status().json()
        return {each["index"]: each["run_id"] for each in found["data"]}


def test_batch_completes_after_the_local_stack_was_killed(tmp_path: Path) -> None:
    settings = {"ORCHESTRATOR_LEASE_SECONDS": "2"}
    with start_local_stack(tmp_path, **settings) as local_stack, calling(local_stack) as client:
        batch_id = client.start()
        eventually(lambda: client.batch(batch_id)["counts"]["completed"] >= 50)
        done = client.completed(batch_id)
        kill(local_stack.process.pid)
        assert 50 <= len(done) < ITEMS * 3 // 4
    with start_local_stack(tmp_path, **settings) as local_stack, calling(local_stack) as client:
        client.resume(batch_id)
        lines = client.lines(batch_id)
        assert comparable_lines(lines) == comparable_lines(client.lines(client.start()))
        assert done.items() <= {line["index"]: line["run_id"] for line in lines}.items()
        assert len(lines) == ITEMS


@contextmanager
def calling(local_stack: LocalStack) -> Iterator[Client]:
    with httpx.Client(base_url=local_stack.url, timeout=60, trust_env=False) as http:
        yield Client(http)


def comparable_lines(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Lines without fields that differ between batches."""
    return [{name: value for name, value in line.items() if name not in {"run_id", "seconds"}} for line in lines]


def kill(pid: int) -> None:
    """Kills a process and its descendants, parents first, so that none is restarted."""
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            each.kill()
