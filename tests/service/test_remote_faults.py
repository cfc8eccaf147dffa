"""The remote expert with faulty providers."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED
from tests.fakes import broken_answers
from tests.fakes.llm.http import Request
from tests.fakes.web import Answer, Web
from tests.service.test_remote import MOOD, remote_environment, web
from tests.support.expert_host import NOT_SERVING, SERVING
from tests.support.served_expert import ServedExpert, serve_expert

__all__ = ["remote_environment", "web"]

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's way of sending bytes

MODEL = "/models/acme/mood"


@pytest.fixture
async def other_server() -> AsyncIterator[Web]:
    """A server that must not be called."""
    async with Web.serving() as other_server:
        yield other_server


@pytest.fixture
async def expert(
    remote_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[ServedExpert]:
    monkeypatch.setenv("REMOTE_REPLY_BYTES", str(broken_answers.LIMIT))
    monkeypatch.setenv("REMOTE_TIMEOUT_SECONDS", "1")
    async with serve_expert("experts.remote", tmp_path) as expert:
        yield expert


@pytest.mark.parametrize("fault", broken_answers.NAMES)
async def test_fault_is_translated_and_the_next_call_succeeds(
    expert: ServedExpert, web: Web, other_server: Web, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    _, code = broken_answers.answers("")[fault]
    web.answers[MODEL] = lambda _: broken_answers.answers(f"{other_server.url}/stolen")[fault][0]
    error = await expert.call_error("text-classification", text="my secret words")
    assert error.code.name == code
    assert error.remedy
    assert not other_server.connections
    web.answer_with(MODEL, MOOD)
    assert (await expert.call("text-classification", text="x"))["text"] == "glad"
    text = f"{error.message} {error.remedy} {''.join(capfd.readouterr())}"
    assert "hf_test" not in text
    assert "my secret words" not in text


@pytest.mark.parametrize("fault", ["endless", "a bomb", "an endless refusal", "a refusal's bomb"])
async def test_too_large_reply_is_not_read_completely(expert: ServedExpert, web: Web, fault: str) -> None:
    answer, _ = broken_answers.answers("")[fault]
    web.answers[MODEL] = lambda _: answer
    tracemalloc.start()
    try:
        await expert.call_error("text-classification", text="x")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20 * broken_answers.LIMIT


async def test_unrequested_compression_is_decoded(expert: ServedExpert, web: Web) -> None:
    web.answers[MODEL] = lambda _: broken_answers.compressed(MOOD)
    assert (await expert.call("text-classification", text="x"))["text"] == "glad"
    assert web.requests[-1].headers["accept-encoding"] == "identity"


async def test_slowly_trickling_answer_times_out(expert: ServedExpert, web: Web) -> None:
    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.1)  # each pause is shorter than the timeout

    web.answers[MODEL] = lambda _: Answer(drops())
    assert (await expert.call_error("text-classification", text="x")).code.name == "DEADLINE_EXCEEDED"


async def test_cancelled_call_ends_its_request_to_the_provider(
    remote_environment: None, web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def never(_: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    web.answers[MODEL] = never
    monkeypatch.setenv("REMOTE_TIMEOUT_SECONDS", "600")
    async with serve_expert("experts.remote", tmp_path) as expert:
        call = asyncio.ensure_future(expert.call("text-classification", text="x"))
        while MODEL not in (await web.arrived.get()).path:
            pass
        call.cancel()
        async with asyncio.timeout(30):
            assert MODEL in (await web.disconnects.get()).path


async def test_calls_share_a_connection_but_no_cookies(expert: ServedExpert, web: Web) -> None:
    web.answer_with(MODEL, MOOD, headers={"Set-Cookie": "who=me; Path=/"})
    before = web.connections
    for _ in range(5):
        await expert.call("text-classification", text="x")
    assert web.connections == before + 1
    assert all("cookie" not in request.headers for request in web.requests)


async def test_image_with_a_huge_header_size_is_not_decoded(expert: ServedExpert, web: Web) -> None:
    web.answer_with("acme/brush", b"P6 60000 60000 255 ", media_type="image/png")
    error = await expert.call_error("text-to-image", text="x")
    assert error.code.name in ("DATA_LOSS", "INTERNAL")
    assert error.remedy


async def test_key_in_a_providers_error_is_removed(
    remote_environment: None, monkeypatch: pytest.MonkeyPatch, web: Web, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_x/y+strange=")
    web.answer_with(MODEL, {"error": "bad hf_x/y+strange= given"}, status=400)
    async with serve_expert("experts.remote", tmp_path) as expert:
        assert "strange" not in (await expert.call_error("text-classification", text="x")).message


@pytest.mark.parametrize("fault", broken_answers.NAMES)
async def test_bundled_cards_are_used_after_any_faulty_answer_of_the_hub(
    remote_environment: None, web: Web, other_server: Web, tmp_path: Path, fault: str
) -> None:
    web.answers["/api/models"] = lambda _: broken_answers.answers(f"{other_server.url}/stolen")[fault][0]
    async with serve_expert("experts.remote", tmp_path) as expert:
        assert (await expert.card("fill-mask")).id == "google-bert/bert-base-uncased"
        assert (await expert.call_error("conversational", text="x")).remedy  # the call looks up the provider on the Hub
    assert not other_server.connections


async def test_offline_expert_calls_only_configured_endpoints(
    remote_environment: None, monkeypatch: pytest.MonkeyPatch, web: Web, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    endpoints = f'[{{"url": "{web.url}/mine", "task": "text-classification", "id": "us/mood"}}]'
    monkeypatch.setenv("REMOTE_ENDPOINTS", endpoints)
    web.answer_with("/mine", MOOD)
    async with serve_expert("experts.remote", tmp_path) as expert:
        assert "offline" in (await expert.call_error("fill-mask", text="[MASK]")).message
        assert (await expert.call("text-classification", text="x"))["text"] == "glad"
        assert await expert.health("readiness") == [SERVING]
    assert {request.path for request in web.requests} == {"/mine"}


async def test_expert_without_providers_is_alive_but_not_ready(
    remote_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    async with serve_expert("experts.remote", tmp_path) as expert:
        assert await expert.health("readiness", "startup", "liveness") == [NOT_SERVING, SERVING, SERVING]
        assert {card.state for card in (await expert.describe()).models} == {MODEL_STATE_FAILED}
