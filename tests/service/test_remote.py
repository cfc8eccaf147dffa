"""The remote expert, asked over gRPC, before servers that stand in for the Hub and its providers."""

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import huggingface_hub.constants
import pytest
from PIL import Image

from experts.host.handler import Media
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_STATE_FAILED, MODEL_STATE_READY
from services.common.errors import RecoveryAction, recovery_action
from tests.fakes.llm import Says, ScriptedLLM
from tests.fakes.llm.http import Request
from tests.fakes.providers import providers
from tests.fakes.web import Answer, Web
from tests.support.expert_host import NOT_SERVING, SERVING
from tests.support.served_expert import Room, serving

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's way of sending bytes

MOOD = [[{"label": "sad", "score": 0.1}, {"label": "glad", "score": 0.87654}]]


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with providers() as web:
        yield web


@pytest.fixture
def configured(web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_llm: None) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "INFERENCE_PROXY_TEMPLATE", web.url + "/{provider}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # as other tests may have it
    for name, value in {
        "HF_TOKEN": "hf_test",
        "HF_ENDPOINT": web.url,
        "REMOTE_CACHE": str(tmp_path / "cards.json"),
        "REMOTE_TIMEOUT_SECONDS": "5",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def room(configured: None, tmp_path: Path) -> AsyncIterator[Room]:
    async with serving("experts.remote", tmp_path) as room:
        yield room


def png(size: tuple[int, int] = (8, 6), colour: str = "red") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def picture() -> Media:
    return Media(png(), "image/png", "photo.png")


async def test_cards_come_from_the_hub_by_task_most_downloaded_first_and_all_are_external(room: Room) -> None:
    described = await room.describe()
    moods = [card for card in described.models if card.task == "text-classification"]
    assert [card.id for card in moods] == ["acme/mood"]  # the client knows no other provider for that
    assert (moods[0].downloads, moods[0].likes, moods[0].license, list(moods[0].languages)) == (1000, 10, "mit", ["en"])
    assert "hf-inference" in moods[0].description
    assert {card.location for card in described.models} == {MODEL_LOCATION_EXTERNAL}
    assert {card.state for card in described.models} == {MODEL_STATE_READY}
    assert [card.id for card in described.models if card.task == "text-to-image"] == ["acme/brush", "acme/brush-two"]
    assert not {"depth-estimation", "mask-generation", "keypoint-detection"} & {spec.name for spec in described.tasks}


async def test_labels_are_those_of_the_provider_with_our_rounding(room: Room, web: Web) -> None:
    web.says("/models/acme/mood", MOOD)
    outputs = await room.ask("text-classification", text="what a day")
    assert outputs["labels"] == [{"label": "glad", "score": 0.8765}, {"label": "sad", "score": 0.1}]
    assert outputs["text"] == "glad"
    assert web.bodies("acme/mood") == [{"inputs": "what a day", "parameters": {"top_k": 5}}]
    assert web.requests[-1].headers["authorization"] == "Bearer hf_test"


async def test_text_tasks_give_what_the_provider_says(room: Room, web: Web) -> None:
    web.says("acme/summary", [{"summary_text": " Short. "}])
    web.says("acme/tongues", [{"translation_text": "Guten Tag"}])
    entity = {"entity_group": "PER", "score": 0.99, "word": "ada", "start": 0, "end": 3}
    web.says("acme/names", [entity])
    web.says("acme/likeness", [0.25, 1.0000001])
    web.says("acme/vector", [[[1.0, 2.0], [3.0, 4.0]]])
    assert (await room.ask("summarization", text="Long.", parameters={"max_length": 9}))["text"] == "Short."
    assert web.bodies("acme/summary")[0]["parameters"] == {"generate_parameters": {"max_length": 9}}
    languages = {"source_language": "en", "target_language": "de"}
    assert (await room.ask("translation", text="Hello", parameters=languages))["text"] == "Guten Tag"
    found = await room.ask("token-classification", text="Ada wrote")
    assert found["entities"] == [{"entity": "PER", "text": "Ada", "score": 0.99, "start": 0, "end": 3}]
    alike = await room.ask("sentence-similarity", text="a", sentences=["b", "c"])
    assert (alike["scores"], alike["text"]) == ([0.25, 1.0], "c (1.0)")
    assert (await room.ask("feature-extraction", text="a"))["embedding"] == [2.0, 3.0]
    assert any(request.path.endswith("/pipeline/feature-extraction") for request in web.requests)


@pytest.mark.parametrize(
    ("text", "source"), [("Guten Tag, wie geht es dir heute?", "de"), ("Où est la gare, s'il vous plaît ?", "fr")]
)
async def test_translation_with_only_a_target_language_detects_the_source(
    room: Room, web: Web, text: str, source: str
) -> None:
    web.says("acme/tongues", [{"translation_text": "Hello"}])
    outputs = await room.ask("translation", text=text, parameters={"target_language": "en"})
    assert outputs["text"] == "Hello"
    assert web.bodies("acme/tongues")[0]["parameters"] == {"src_lang": source, "tgt_lang": "en"}


async def test_translation_with_only_a_source_language_is_refused(room: Room, web: Web) -> None:
    refused = await room.refused("translation", text="Hello", parameters={"source_language": "en"})
    assert refused.port == "parameters.target_language"
    assert not web.bodies("acme/tongues")


async def test_boxes_and_masks_come_back_drawn(room: Room, web: Web) -> None:
    box = {"xmin": 1, "ymin": 1, "xmax": 5, "ymax": 4}
    web.says("acme/boxes", [{"label": "cat", "score": 0.9, "box": box}])
    half = Image.new("L", (8, 6), 0)
    half.paste(255, (0, 0, 4, 6))
    buffer = io.BytesIO()
    half.save(buffer, "PNG")
    web.says("acme/masks", [{"label": "sky", "score": 0.8, "mask": base64.b64encode(buffer.getvalue()).decode()}])
    boxes = await room.ask("object-detection", image=picture())
    assert boxes["objects"] == [{"label": "cat", "score": 0.9, "box": {"xmin": 1, "ymin": 1, "xmax": 5, "ymax": 4}}]
    assert boxes["text"] == "1 cat"
    assert Image.open(io.BytesIO(boxes["image"])).size == (8, 6)
    masks = await room.ask("image-segmentation", image=picture())
    assert masks["segments"] == [{"label": "sky", "score": 0.8, "area": 24}]
    levels = Image.open(io.BytesIO(masks["mask"]))
    assert (levels.getpixel((0, 0)), levels.getpixel((7, 0))) == (255, 0)


async def test_only_the_picture_leaves_not_what_else_is_in_its_file(room: Room, web: Web) -> None:
    exif = Image.Exif()
    exif[0x010E] = "at home, 52.5 N"
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), "blue").save(buffer, "JPEG", exif=exif)
    web.says("acme/boxes", [])
    await room.ask("object-detection", image=Media(buffer.getvalue(), "image/jpeg", "home.jpg"))
    sent = base64.b64decode(web.bodies("acme/boxes")[0]["inputs"])
    assert b"at home" in buffer.getvalue()
    assert b"at home" not in sent


async def test_recordings_are_sent_with_their_type(room: Room, web: Web) -> None:
    web.says("acme/ears", {"text": " hello there ", "chunks": [{"text": " hello", "timestamp": [0.0, 0.5]}]})
    heard = await room.ask("automatic-speech-recognition", audio=Media(b"RIFF....WAVE", "audio/wav", "a.wav"))
    assert heard == {"text": "hello there", "segments": [{"text": "hello", "start": 0.0, "end": 0.5}]}
    assert web.requests[-1].headers["content-type"] == "audio/wav"
    assert web.requests[-1].body == b"RIFF....WAVE"


async def test_other_providers_are_asked_under_their_own_name_of_the_model(room: Room, web: Web) -> None:
    web.says("nscale/v1/images", {"data": [{"b64_json": base64.b64encode(png(colour="green")).decode()}]})
    made = await room.ask("text-to-image", model="acme/brush-two", text="a lawn", parameters={"seed": 7})
    assert Image.open(io.BytesIO(made["image"])).convert("RGB").getpixel((0, 0)) == (0, 128, 0)
    assert web.bodies("nscale/v1/images")[0]["model"] == "nscale-acme/brush-two"


async def test_models_that_chat_see_pictures_and_answer(room: Room, web: Web) -> None:
    def reply(request: Request) -> Answer:
        return Answer({"choices": [{"message": {"role": "assistant", "content": "A red field."}, "index": 0}]})

    web.answers["/chat/completions"] = reply
    assert (await room.ask("image-to-text", image=picture()))["text"] == "A red field."
    shown = web.bodies("/chat/completions")[0]["messages"][1]["content"][0]["image_url"]["url"]
    assert shown.startswith("data:image/png;base64,")
    assert (await room.ask("conversational", text="hi"))["text"] == "A red field."


async def test_under_the_policy_local_nobody_is_connected_to(room: Room, web: Web) -> None:
    web.says("/models/acme/mood", MOOD)
    before = web.connections
    tasks: dict[str, dict[str, Any]] = {
        "text-classification": {"text": "x"},
        "object-detection": {"image": picture()},
        "conversational": {"text": "x"},
    }
    for task, inputs in tasks.items():
        error = await room.refused(task, local=True, **inputs)
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "POLICY")
    assert web.connections == before


async def test_who_does_not_say_its_policy_is_refused(room: Room, web: Web) -> None:
    before = web.connections
    error = await room.refusal(task="text-classification")  # a caller without a policy
    assert error.reason == "POLICY"
    assert web.connections == before


@dataclass(frozen=True)
class Refused:
    """What a provider says, and what we make of it."""

    status: int
    headers: Mapping[str, str]
    body: Any
    code: str
    reason: str
    recovery_action: RecoveryAction
    after: float | None = None


REFUSALS = [
    Refused(429, {"Retry-After": "7"}, {"error": "slow"}, "RESOURCE_EXHAUSTED", "OVERLOADED", RecoveryAction.RETRY, 7),
    Refused(
        503, {}, {"error": "loading", "estimated_time": 45.0}, "UNAVAILABLE", "UNAVAILABLE", RecoveryAction.RETRY, 45
    ),
    Refused(504, {}, None, "DEADLINE_EXCEEDED", "DEADLINE", RecoveryAction.RETRY),
    Refused(404, {}, None, "NOT_FOUND", "MODEL", RecoveryAction.NEXT_CANDIDATE),
    Refused(401, {}, {"error": "bad token"}, "FAILED_PRECONDITION", "LOAD_FAILED", RecoveryAction.NEXT_CANDIDATE),
    Refused(403, {}, {"error": "it is gated"}, "FAILED_PRECONDITION", "LOAD_FAILED", RecoveryAction.NEXT_CANDIDATE),
    Refused(400, {}, {"error": ["too long"]}, "INTERNAL", "MODEL_FAILED", RecoveryAction.NEXT_CANDIDATE),
    Refused(500, {}, None, "INTERNAL", "MODEL_FAILED", RecoveryAction.NEXT_CANDIDATE),
]


@pytest.mark.parametrize("refused", REFUSALS, ids=lambda refused: str(refused.status))
async def test_what_a_provider_refuses_is_said_in_the_houses_words(room: Room, web: Web, refused: Refused) -> None:
    web.says("/models/acme/mood", refused.body, status=refused.status, headers=refused.headers)
    error = await room.refused("text-classification", text="x")
    assert (error.code.name, error.reason, recovery_action(error)) == (
        refused.code,
        refused.reason,
        refused.recovery_action,
    )
    assert error.remedy
    assert "hf_test" not in error.message + error.remedy
    assert len(web.bodies("/models/acme/mood")) == 1
    assert (error.retry_after.total_seconds() if error.retry_after else None) == refused.after


async def test_who_is_refused_a_gated_model_is_told_its_page_and_the_tokens_variable(room: Room, web: Web) -> None:
    web.says("/models/acme/mood", {"error": "it is gated"}, status=403)
    remedy = (await room.refused("text-classification", text="x")).remedy
    assert "https://huggingface.co/acme/mood" in remedy
    assert "HF_TOKEN" in remedy


async def test_a_model_that_needs_a_moment_is_asked_again(room: Room, web: Web) -> None:
    replies = iter([Answer({"error": "loading", "estimated_time": 0.01}, 503), Answer(MOOD)])
    web.answers["/models/acme/mood"] = lambda _: next(replies)
    assert (await room.ask("text-classification", text="x"))["text"] == "glad"
    assert len(web.bodies("/models/acme/mood")) == 2


async def test_a_provider_that_wants_money_is_not_asked_again_and_its_models_say_so(room: Room, web: Web) -> None:
    web.says("/models/acme/", {"error": "You have exceeded your included credits"}, status=402)
    assert await room.health("acme/mood") == [SERVING]
    first = await room.refused("text-classification", text="x")
    assert (first.reason, recovery_action(first)) == ("LOAD_FAILED", RecoveryAction.NEXT_CANDIDATE)
    again = await room.refused("summarization", text="x")
    assert "paid" in again.message
    assert again.retry_after
    assert len(web.bodies("/models/acme/")) == 1
    card = await room.card("summarization")
    assert (card.state, "paid" in card.failure) == (MODEL_STATE_FAILED, True)
    assert (await room.card("text-to-image", "acme/brush-two")).state == MODEL_STATE_READY
    await room.until(NOT_SERVING, "acme/mood")


async def test_nonsense_from_a_provider_turns_to_the_next_candidate(room: Room, web: Web) -> None:
    for nonsense in ([], [{"a": 1}], "text", {"labels": 3}):
        web.says("/models/acme/mood", nonsense)
        error = await room.refused("text-classification", text="x")
        assert error.code.name == "DATA_LOSS"
    web.says("acme/brush", b"no picture", media_type="image/png")
    assert recovery_action(await room.refused("text-to-image", text="x")) is RecoveryAction.NEXT_CANDIDATE


async def test_calls_of_one_model_do_not_wait_for_each_other(room: Room, web: Web) -> None:
    together = asyncio.Barrier(3)

    async def meet(_: Request) -> Answer:
        await together.wait()
        return Answer(MOOD)

    web.answers["/models/acme/mood"] = meet
    async with asyncio.timeout(10):
        asked = [room.ask("text-classification", text=text) for text in "abc"]
        assert [outputs["text"] for outputs in await asyncio.gather(*asked)] == ["glad"] * 3


async def test_a_caller_who_leaves_gives_its_place_back(room: Room, web: Web) -> None:
    async def never(_: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    web.answers["/models/acme/mood"] = never
    call = asyncio.ensure_future(room.ask("text-classification", text="x"))
    while "/models/acme/mood" not in (await web.arrived.get()).path:
        pass
    assert (await room.describe()).load.running == 1
    call.cancel()
    await asyncio.wait([call])
    while (await room.describe()).load.running:
        pass


async def test_without_a_token_it_starts_and_says_what_is_missing(
    configured: None, monkeypatch: pytest.MonkeyPatch, web: Web, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    async with serving("experts.remote", tmp_path) as room:
        described = await room.describe()
        assert described.models
        assert {card.state for card in described.models} == {MODEL_STATE_FAILED}
        assert "HF_TOKEN" in described.models[0].failure
        error = await room.refused("fill-mask", text="Paris is [MASK].")
        assert (error.reason, "HF_TOKEN" in error.remedy) == ("LOAD_FAILED", True)
    assert not web.connections


async def test_cards_outlive_the_hub_in_a_cache(configured: None, web: Web, tmp_path: Path) -> None:
    async with serving("experts.remote", tmp_path) as room:
        before = [card.id for card in (await room.describe()).models]
    asked = len(web.requests)
    await web.stop()
    async with serving("experts.remote", tmp_path) as room:
        assert [card.id for card in (await room.describe()).models] == before
    assert len(web.requests) == asked


async def test_where_the_hub_does_not_answer_the_shipped_cards_stand_in(
    configured: None, web: Web, tmp_path: Path
) -> None:
    web.says("/api/models", status=500)
    async with serving("experts.remote", tmp_path) as room:
        assert (await room.card("fill-mask")).id == "google-bert/bert-base-uncased"


async def test_who_runs_a_shipped_model_is_asked_of_the_hub_once_and_off_the_loop(
    configured: None, web: Web, tmp_path: Path
) -> None:
    asked: list[str] = []

    def hub(request: Request) -> Answer:
        if "pipeline_tag" in request.path:
            return Answer(status=500)
        asked.append(request.path)
        novita = {"providerId": "novita-llama", "status": "live", "task": "conversational"}
        return Answer({"id": "x", "inferenceProviderMapping": {"novita": novita}})

    web.answers["/api/models"] = hub
    web.says("/chat/completions", {"choices": [{"message": {"role": "assistant", "content": "Hi."}, "index": 0}]})
    async with serving("experts.remote", tmp_path) as room:
        for _ in range(2):
            assert (await room.ask("conversational", text="hello"))["text"] == "Hi."
        web.answers["/api/models"] = lambda _: Answer({"id": "x"})
        error = await room.refused("text-to-speech", text="hello")
        assert (error.code.name, error.reason) == ("NOT_FOUND", "MODEL")
    assert len(asked) == 1
    assert {body["model"] for body in web.bodies("novita")} == {"novita-llama"}


async def test_an_endpoint_of_ones_own_is_asked_first(
    configured: None, monkeypatch: pytest.MonkeyPatch, web: Web, tmp_path: Path
) -> None:
    own = f'[{{"url": "{web.url}/mine", "task": "text-classification", "id": "us/mood"}}]'
    monkeypatch.setenv("REMOTE_ENDPOINTS", own)
    web.says("/mine", MOOD)
    async with serving("experts.remote", tmp_path) as room:
        assert (await room.ask("text-classification", text="x"))["text"] == "glad"
        web.says("/mine", status=402)
        await room.refused("text-classification", text="x")
        assert (await room.card("text-classification", "acme/mood")).state == MODEL_STATE_READY


async def test_text_tasks_are_done_by_the_configured_llm_too(
    configured: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quoted = Says('{"answer": "in 1998"}')
    async with ScriptedLLM.serving([Says("Kurz."), quoted, Says('{"answer": "never said"}')]) as llm:
        monkeypatch.setenv("LLM_BASE_URL", llm.base_url)
        monkeypatch.setenv("LLM_MODEL", "little:7b")
        async with serving("experts.remote", tmp_path) as room:
            assert (await room.ask("summarization", model="llm/little-7b", text="Lang."))["text"] == "Kurz."
            asked: dict[str, Any] = {"model": "llm/little-7b", "question": "When?", "context": "It began in 1998."}
            found = await room.ask("question-answering", **asked)
            assert found["details"] == {"answer": "in 1998", "score": 1.0, "start": 9, "end": 16}
            assert (await room.refused("question-answering", **asked)).code.name == "DATA_LOSS"
            asks = len(llm.requests)
            assert (await room.refused("summarization", model="llm/little-7b", text="x", local=True)).reason == "POLICY"
            assert len(llm.requests) == asks
