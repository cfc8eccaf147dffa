"""The remote expert before providers that answer as nobody should."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED
from tests.fakes import broken_answers
from tests.fakes.llm.http import Request
from tests.fakes.web import Answer, Web
from tests.service.test_remote import MOOD, configured, web
from tests.support.expert_host import NOT_SERVING, SERVING
from tests.support.served_expert import Room, serving

__all__ = ["configured", "web"]

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's way of sending bytes

MODEL = "/models/acme/mood"


@pytest.fixture
async def elsewhere() -> AsyncIterator[Web]:
    """A server that nobody may be sent to."""
    async with Web.serving() as elsewhere:
        yield elsewhere


@pytest.fixture
async def room(configured: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Room]:
    monkeypatch.setenv("REMOTE_REPLY_BYTES", str(broken_answers.LIMIT))
    monkeypatch.setenv("REMOTE_TIMEOUT_SECONDS", "1")
    async with serving("experts.remote", tmp_path) as room:
        yield room


@pytest.mark.parametrize("fault", broken_answers.NAMES)
async def test_every_fault_is_a_clear_error_and_the_next_call_is_answered(
    room: Room, web: Web, elsewhere: Web, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    _, code = broken_answers.answers("")[fault]
    web.answers[MODEL] = lambda _: broken_answers.answers(f"{elsewhere.url}/stolen")[fault][0]
    error = await room.refused("text-classification", text="my secret words")
    assert error.code.name == code
    assert error.remedy
    assert not elsewhere.connections
    web.says(MODEL, MOOD)
    assert (await room.ask("text-classification", text="x"))["text"] == "glad"
    said = f"{error.message} {error.remedy} {''.join(capfd.readouterr())}"
    assert "hf_test" not in said
    assert "my secret words" not in said


@pytest.mark.parametrize("fault", ["endless", "a bomb", "an endless refusal", "a refusal's bomb"])
async def test_what_is_too_large_is_never_held_whole(room: Room, web: Web, fault: str) -> None:
    answer, _ = broken_answers.answers("")[fault]
    web.answers[MODEL] = lambda _: answer
    tracemalloc.start()
    try:
        await room.refused("text-classification", text="x")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20 * broken_answers.LIMIT


async def test_what_is_compressed_though_nobody_asked_for_that_is_read(room: Room, web: Web) -> None:
    web.answers[MODEL] = lambda _: broken_answers.compressed(MOOD)
    assert (await room.ask("text-classification", text="x"))["text"] == "glad"
    assert web.requests[-1].headers["accept-encoding"] == "identity"


async def test_an_answer_that_comes_in_drops_is_not_waited_for_for_ever(room: Room, web: Web) -> None:
    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.1)  # never silent for as long as the limit

    web.answers[MODEL] = lambda _: Answer(drops())
    assert (await room.refused("text-classification", text="x")).code.name == "DEADLINE_EXCEEDED"


async def test_caller_that_leaves_ends_the_request_to_the_provider_before_its_timeout(
    configured: None, web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def never(_: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    web.answers[MODEL] = never
    monkeypatch.setenv("REMOTE_TIMEOUT_SECONDS", "600")
    async with serving("experts.remote", tmp_path) as room:
        call = asyncio.ensure_future(room.ask("text-classification", text="x"))
        while MODEL not in (await web.arrived.get()).path:
            pass
        call.cancel()
        async with asyncio.timeout(30):
            assert MODEL in (await web.left.get()).path


async def test_calls_share_a_connection_but_nothing_a_provider_left_there(room: Room, web: Web) -> None:
    web.says(MODEL, MOOD, headers={"Set-Cookie": "who=me; Path=/"})
    before = web.connections
    for _ in range(5):
        await room.ask("text-classification", text="x")
    assert web.connections == before + 1
    assert all("cookie" not in request.headers for request in web.requests)


async def test_a_picture_that_says_it_is_huge_is_not_decoded(room: Room, web: Web) -> None:
    web.says("acme/brush", b"P6 60000 60000 255 ", media_type="image/png")
    error = await room.refused("text-to-image", text="x")
    assert error.code.name in ("DATA_LOSS", "INTERNAL")
    assert error.remedy


async def test_a_key_that_a_provider_repeats_is_not_repeated(
    configured: None, monkeypatch: pytest.MonkeyPatch, web: Web, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_x/y+strange=")
    web.says(MODEL, {"error": "bad hf_x/y+strange= given"}, status=400)
    async with serving("experts.remote", tmp_path) as room:
        assert "strange" not in (await room.refused("text-classification", text="x")).message


@pytest.mark.parametrize("fault", broken_answers.NAMES)
async def test_whatever_the_hub_answers_there_are_cards(
    configured: None, web: Web, elsewhere: Web, tmp_path: Path, fault: str
) -> None:
    web.answers["/api/models"] = lambda _: broken_answers.answers(f"{elsewhere.url}/stolen")[fault][0]
    async with serving("experts.remote", tmp_path) as room:
        assert (await room.card("fill-mask")).id == "google-bert/bert-base-uncased"
        assert (await room.refused("conversational", text="x")).remedy  # the Hub is asked who runs it
    assert not elsewhere.connections


async def test_offline_no_provider_is_asked_but_an_endpoint_of_ones_own_is(
    configured: None, monkeypatch: pytest.MonkeyPatch, web: Web, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    own = f'[{{"url": "{web.url}/mine", "task": "text-classification", "id": "us/mood"}}]'
    monkeypatch.setenv("REMOTE_ENDPOINTS", own)
    web.says("/mine", MOOD)
    async with serving("experts.remote", tmp_path) as room:
        assert "offline" in (await room.refused("fill-mask", text="[MASK]")).message
        assert (await room.ask("text-classification", text="x"))["text"] == "glad"
        assert await room.health("readiness") == [SERVING]
    assert {request.path for request in web.requests} == {"/mine"}


async def test_where_nobody_can_be_asked_it_is_not_ready_and_alive_all_the_same(
    configured: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    async with serving("experts.remote", tmp_path) as room:
        assert await room.health("readiness", "startup", "liveness") == [NOT_SERVING, SERVING, SERVING]
        assert {card.state for card in (await room.describe()).models} == {MODEL_STATE_FAILED}
