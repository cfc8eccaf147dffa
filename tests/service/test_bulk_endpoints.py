"""Bulk jobs with tasks on endpoints and existing servers: calls at the same time, and repeated when asked to."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experts.bulk.worker import REMOTE_CALLS
from tests.fakes.llm.http import Request
from tests.fakes.web import Answer, Web
from tests.support.bulk import CLASSIFY, EndedJob, read_table, run_job

pytestmark = pytest.mark.slow

LETTERS = 40
RETRY_AFTER = 1.0


class Endpoint:
    """Refuses the first call for a time, and answers no other call until two are waiting.

    Args:
        reply: body of its answers.
    """

    def __init__(self, reply: Any) -> None:
        self.most_calls = 0
        self.pause = 0.0
        """Seconds between the refusal and the next call for the same letter."""
        self._reply = reply
        self._calls = 0
        self._two_wait = asyncio.Event()
        self._refused: tuple[bytes, float] | None = None

    async def answer(self, request: Request) -> Answer:
        now = time.monotonic()
        if self._refused is None:
            self._refused = request.body, now
            return Answer({"error": "too many requests"}, status=429, headers={"Retry-After": str(RETRY_AFTER)})
        if request.body == self._refused[0]:
            self.pause = now - self._refused[1]
        self._calls += 1
        self.most_calls = max(self.most_calls, self._calls)
        if self._calls > 1:
            self._two_wait.set()
        await self._two_wait.wait()
        self._calls -= 1
        return Answer(self._reply)


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(LETTERS):
        (folder / f"{index:02}.txt").write_text(f"Letter {index} is long.")
    return folder


async def run(
    letters: Path, expert: str, task: str, model: str, environment: Mapping[str, str], **fields: Any
) -> EndedJob:
    plan = [{"id": 1, "task": task, "model": model, "args": {"text": {"input": "letter"}}}]
    folder = letters.parent
    job = {"pipeline": {**CLASSIFY, "plan": plan, **fields}, "experts": [expert], "workers": 1}
    return await asyncio.to_thread(run_job, folder, [letters], folder / "out", environment, **job)


def check(job: EndedJob, endpoint: Endpoint, letters: Path, text: str) -> None:
    assert job.status == 0, job.errors
    rows = read_table(letters.parent / "out")
    assert [row["text"] for row in rows.values()] == [text] * LETTERS
    assert 1 < endpoint.most_calls <= REMOTE_CALLS
    assert endpoint.pause >= RETRY_AFTER


async def test_rows_are_answered_by_an_endpoint_after_the_time_that_it_requests(letters: Path, tmp_path: Path) -> None:
    endpoint = Endpoint([[{"label": "glad", "score": 0.9}]])
    async with Web.serving() as web:
        web.answers["/mine"] = endpoint.answer
        endpoints = [{"url": f"{web.url}/mine", "task": "text-classification", "id": "us/mood"}]
        environment = {
            "REMOTE_ENDPOINTS": json.dumps(endpoints),
            "REMOTE_CACHE": str(tmp_path / "cards.json"),
            "HF_HUB_OFFLINE": "1",
        }
        job = await run(letters, "remote", "text-classification", "us/mood", environment)
    check(job, endpoint, letters, "glad")


async def test_rows_are_answered_by_an_existing_server_after_the_time_that_it_requests(
    letters: Path, tmp_path: Path
) -> None:
    message = {"role": "assistant", "content": "Short."}
    endpoint = Endpoint({"choices": [{"message": message, "index": 0, "finish_reason": "stop"}]})
    async with Web.serving() as web:
        web.answer_with("/v1/models", {"object": "list", "data": [{"id": "writer"}]})
        web.answers["/chat/completions"] = endpoint.answer
        models = [{"name": "writer", "tasks": ["summarization"]}]
        server = {"name": "box", "kind": "openai", "address": f"{web.url}/v1", "location": "internal", "models": models}
        file = tmp_path / "served.json"
        file.write_text(json.dumps({"servers": [server]}))
        environment = {"EXPERT_SERVED": str(file)}
        job = await run(letters, "served", "summarization", "box/writer", environment, policy="local")
    check(job, endpoint, letters, "Short.")
