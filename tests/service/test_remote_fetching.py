"""Providers that queue a call, are polled, and return the URL of the result."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.llm.http import Request
from tests.fakes.providers import MODELS
from tests.fakes.web import Answer, Web
from tests.service.test_remote import remote_environment, web
from tests.support.served_expert import ServedExpert, serve_expert

__all__ = ["remote_environment", "web"]

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's way of sending bytes

VIDEO = b"\0\0\0\x18ftypmp42 film"
MODEL = "acme/film"


class Queueing:
    """A provider whose result becomes ready when the test sets an event."""

    def __init__(self, web: Web) -> None:
        self.ready = asyncio.Event()
        self.polled = asyncio.Event()
        self.address = f"{web.url}/films/1.mp4"
        self.result: Answer = Answer(VIDEO, media_type="video/mp4")
        job = {"request_id": "1", "status": "IN_QUEUE", "response_url": "https://queue.example/jobs/1"}
        web.answers |= {
            "/jobs/1/status": self._status,
            "/jobs/1": lambda _: Answer({"video": {"url": self.address}}),
            "/films/1.mp4": lambda _: self.result,
            f"fal-ai/fal-ai-{MODEL}": lambda _: Answer(job),
        }

    async def _status(self, _: Request) -> Answer:
        self.polled.set()
        return Answer({"status": "COMPLETED" if self.ready.is_set() else "IN_PROGRESS"})


@pytest.fixture
def queueing_provider(web: Web) -> Queueing:
    return Queueing(web)


@pytest.fixture
async def expert(
    remote_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[ServedExpert]:
    monkeypatch.setitem(MODELS, MODEL, ("text-to-video", "fal-ai", "text-to-video"))
    async with serve_expert("experts.remote", tmp_path) as expert:
        yield expert


def start_video_call(expert: ServedExpert) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(expert.call("text-to-video", text="a lawn"))


async def test_polling_for_a_result_does_not_block_other_calls(
    expert: ServedExpert, queueing_provider: Queueing
) -> None:
    call = start_video_call(expert)
    await queueing_provider.polled.wait()
    assert (await expert.describe()).load.running == 1
    queueing_provider.ready.set()
    assert (await call)["video"] == VIDEO


async def test_cancelled_call_ends_the_polling(expert: ServedExpert, web: Web, queueing_provider: Queueing) -> None:
    call = start_video_call(expert)
    await queueing_provider.polled.wait()
    call.cancel()
    await asyncio.wait([call])
    while (await expert.describe()).load.running:
        pass
    queueing_provider.ready.set()
    for thread in threading.enumerate():
        if thread.name == "remote-call":
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()
    assert not any("/films/" in request.path for request in web.requests)


async def test_key_is_sent_only_to_the_router(
    remote_environment: None,
    expert: ServedExpert,
    web: Web,
    queueing_provider: Queueing,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queueing_provider.ready.set()
    async with Web.serving() as other:
        queueing_provider.address = f"{other.url}/films/1.mp4"
        error = await expert.call_error("text-to-video", text="a lawn")
        assert "not a public https address" in error.message
        assert not other.connections
    sent = [request for request in web.requests if "/jobs/" in request.path]
    assert {request.headers["authorization"] for request in sent} == {"Bearer hf_test"}


async def test_fetched_result_has_a_size_limit(
    remote_environment: None, monkeypatch: pytest.MonkeyPatch, queueing_provider: Queueing, tmp_path: Path
) -> None:
    monkeypatch.setitem(MODELS, MODEL, ("text-to-video", "fal-ai", "text-to-video"))
    monkeypatch.setenv("REMOTE_REPLY_BYTES", "4096")
    queueing_provider.ready.set()
    queueing_provider.result = Answer(VIDEO + b" " * 8192, media_type="video/mp4")
    async with serve_expert("experts.remote", tmp_path) as expert:
        error = await expert.call_error("text-to-video", text="a lawn")
    assert error.code.name == "DATA_LOSS"
    assert "more than 4,096 bytes" in error.message


async def test_failed_job_is_translated_to_an_error(
    expert: ServedExpert, web: Web, queueing_provider: Queueing
) -> None:
    queueing_provider.ready.set()
    queueing_provider.result = Answer(b"<html>", media_type="text/html")
    assert (await expert.call_error("text-to-video", text="a lawn")).code.name == "DATA_LOSS"
    web.answers["/jobs/1/status"] = lambda _: Answer({"error": "no"}, status=429, headers={"Retry-After": "9"})
    error = await expert.call_error("text-to-video", text="a lawn")
    assert error.code.name == "RESOURCE_EXHAUSTED"
    assert (error.retry_after.total_seconds() if error.retry_after else 0) == 9
