"""The remote expert over gRPC, with fakes of the Hub and its providers."""

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
from tests.fakes.llm.http import Request
from tests.fakes.providers import providers
from tests.fakes.web import Answer, Web
from tests.support.expert_host import NOT_SERVING, SERVING
from tests.support.served_expert import ServedExpert, serve_expert

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's way of sending bytes

MOOD = [[{"label": "sad", "score": 0.1}, {"label": "glad", "score": 0.87654}]]


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with providers() as web:
        yield web


@pytest.fixture
def remote_environment(web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_llm: None) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "INFERENCE_PROXY_TEMPLATE", web.url + "/{provider}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # other tests may have set it
    for name, value in {
        "HF_TOKEN": "hf_test",
        "HF_ENDPOINT": web.url,
        "REMOTE_CACHE": str(tmp_path / "cards.json"),
        "REMOTE_TIMEOUT_SECONDS": "5",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def expert(remote_environment: None, tmp_path: Path) -> AsyncIterator[ServedExpert]:
    async with serve_expert("experts.remote", tmp_path) as expert:
        yield expert


def png(size: tuple[int, int] = (8, 6), colour: str = "red") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def picture() -> Media:
    return Media(png(), "image/png", "photo.png")


async def test_cards_are_listed_by_downloads_and_external(expert: ServedExpert) -> None:
    described = await expert.describe()
    moods = [card for card in described.models if card.task == "text-classification"]
    assert [card.id for card in moods] == ["acme/mood"]  # the client supports no other provider for this task
    assert moods[0].downloads == 1000
    assert moods[0].likes == 10
    assert moods[0].license == "mit"
    assert list(moods[0].languages) == ["en"]
    assert "hf-inference" in moods[0].description
    assert {card.location for card in described.models} == {MODEL_LOCATION_EXTERNAL}
    assert {card.state for card in described.models} == {MODEL_STATE_READY}
    assert [card.id for card in described.models if card.task == "text-to-image"] == ["acme/brush", "acme/brush-two"]
    assert not {"depth-estimation", "mask-generation", "keypoint-detection"} & {spec.name for spec in described.tasks}


async def test_labels_of_the_provider_are_rounded(expert: ServedExpert, web: Web) -> None:
    web.answer_with("/models/acme/mood", MOOD)
    outputs = await expert.call("text-classification", text="what a day")
    assert outputs["labels"] == [{"label": "glad", "score": 0.8765}, {"label": "sad", "score": 0.1}]
    assert outputs["text"] == "glad"
    assert web.bodies("acme/mood") == [{"inputs": "what a day", "parameters": {"top_k": 5}}]
    assert web.requests[-1].headers["authorization"] == "Bearer hf_test"


async def test_text_tasks_return_the_providers_answers(expert: ServedExpert, web: Web) -> None:
    web.answer_with("acme/summary", [{"summary_text": " Short. "}])
    web.answer_with("acme/tongues", [{"translation_text": "Guten Tag"}])
    entity = {"entity_group": "PER", "score": 0.99, "word": "ada", "start": 0, "end": 3}
    web.answer_with("acme/names", [entity])
    web.answer_with("acme/likeness", [0.25, 1.0000001])
    web.answer_with("acme/vector", [[[1.0, 2.0], [3.0, 4.0]]])
    assert (await expert.call("summarization", text="Long.", parameters={"max_length": 9}))["text"] == "Short."
    assert web.bodies("acme/summary")[0]["parameters"] == {"generate_parameters": {"max_length": 9}}
    languages = {"source_language": "en", "target_language": "de"}
    assert (await expert.call("translation", text="Hello", parameters=languages))["text"] == "Guten Tag"
    entities = await expert.call("token-classification", text="Ada wrote")
    assert entities["entities"] == [{"entity": "PER", "text": "Ada", "score": 0.99, "start": 0, "end": 3}]
    similarity = await expert.call("sentence-similarity", text="a", sentences=["b", "c"])
    assert similarity["scores"] == [0.25, 1.0]
    assert similarity["text"] == "c (1.0)"
    assert (await expert.call("feature-extraction", text="a"))["embedding"] == [2.0, 3.0]
    assert any(request.path.endswith("/pipeline/feature-extraction") for request in web.requests)


@pytest.mark.parametrize(
    ("text", "source"), [("Guten Tag, wie geht es dir heute?", "de"), ("Où est la gare, s'il vous plaît ?", "fr")]
)
async def test_translation_with_only_a_target_language_detects_the_source(
    expert: ServedExpert, web: Web, text: str, source: str
) -> None:
    web.answer_with("acme/tongues", [{"translation_text": "Hello"}])
    outputs = await expert.call("translation", text=text, parameters={"target_language": "en"})
    assert outputs["text"] == "Hello"
    assert web.bodies("acme/tongues")[0]["parameters"] == {"src_lang": source, "tgt_lang": "en"}


async def test_translation_with_only_a_source_language_is_refused(expert: ServedExpert, web: Web) -> None:
    call_error = await expert.call_error("translation", text="Hello", parameters={"source_language": "en"})
    assert call_error.port == "parameters.target_language"
    assert not web.bodies("acme/tongues")


async def test_boxes_and_masks_are_drawn_on_the_image(expert: ServedExpert, web: Web) -> None:
    box = {"xmin": 1, "ymin": 1, "xmax": 5, "ymax": 4}
    web.answer_with("acme/boxes", [{"label": "cat", "score": 0.9, "box": box}])
    half = Image.new("L", (8, 6), 0)
    half.paste(255, (0, 0, 4, 6))
    buffer = io.BytesIO()
    half.save(buffer, "PNG")
    web.answer_with(
        "acme/masks", [{"label": "sky", "score": 0.8, "mask": base64.b64encode(buffer.getvalue()).decode()}]
    )
    boxes = await expert.call("object-detection", image=picture())
    assert boxes["objects"] == [{"label": "cat", "score": 0.9, "box": {"xmin": 1, "ymin": 1, "xmax": 5, "ymax": 4}}]
    assert boxes["text"] == "1 cat"
    assert Image.open(io.BytesIO(boxes["image"])).size == (8, 6)
    masks = await expert.call("image-segmentation", image=picture())
    assert masks["segments"] == [{"label": "sky", "score": 0.8, "area": 24}]
    levels = Image.open(io.BytesIO(masks["mask"]))
    assert levels.getpixel((0, 0)) == 255
    assert levels.getpixel((7, 0)) == 0


async def test_image_is_sent_without_its_metadata(expert: ServedExpert, web: Web) -> None:
    exif = Image.Exif()
    exif[0x010E] = "at home, 52.5 N"
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), "blue").save(buffer, "JPEG", exif=exif)
    web.answer_with("acme/boxes", [])
    await expert.call("object-detection", image=Media(buffer.getvalue(), "image/jpeg", "home.jpg"))
    sent = base64.b64decode(web.bodies("acme/boxes")[0]["inputs"])
    assert b"at home" in buffer.getvalue()
    assert b"at home" not in sent


async def test_audio_is_sent_with_its_media_type(expert: ServedExpert, web: Web) -> None:
    web.answer_with("acme/ears", {"text": " hello there ", "chunks": [{"text": " hello", "timestamp": [0.0, 0.5]}]})
    transcript = await expert.call("automatic-speech-recognition", audio=Media(b"RIFF....WAVE", "audio/wav", "a.wav"))
    assert transcript == {"text": "hello there", "segments": [{"text": "hello", "start": 0.0, "end": 0.5}]}
    assert web.requests[-1].headers["content-type"] == "audio/wav"
    assert web.requests[-1].body == b"RIFF....WAVE"


async def test_provider_is_called_with_its_own_model_name(expert: ServedExpert, web: Web) -> None:
    web.answer_with("nscale/v1/images", {"data": [{"b64_json": base64.b64encode(png(colour="green")).decode()}]})
    outputs = await expert.call("text-to-image", model="acme/brush-two", text="a lawn", parameters={"seed": 7})
    assert Image.open(io.BytesIO(outputs["image"])).convert("RGB").getpixel((0, 0)) == (0, 128, 0)
    assert web.bodies("nscale/v1/images")[0]["model"] == "nscale-acme/brush-two"


async def test_chat_model_answers_a_question_about_an_image(expert: ServedExpert, web: Web) -> None:
    def reply(request: Request) -> Answer:
        return Answer({"choices": [{"message": {"role": "assistant", "content": "A red field."}, "index": 0}]})

    web.answers["/chat/completions"] = reply
    assert (await expert.call("image-to-text", image=picture()))["text"] == "A red field."
    shown = web.bodies("/chat/completions")[0]["messages"][1]["content"][0]["image_url"]["url"]
    assert shown.startswith("data:image/png;base64,")
    assert (await expert.call("conversational", text="hi"))["text"] == "A red field."


async def test_local_policy_opens_no_connection(expert: ServedExpert, web: Web) -> None:
    web.answer_with("/models/acme/mood", MOOD)
    before = web.connections
    tasks: dict[str, dict[str, Any]] = {
        "text-classification": {"text": "x"},
        "object-detection": {"image": picture()},
        "conversational": {"text": "x"},
    }
    for task, inputs in tasks.items():
        error = await expert.call_error(task, local=True, **inputs)
        assert error.code == grpc.StatusCode.FAILED_PRECONDITION
        assert error.reason == "POLICY"
    assert web.connections == before


async def test_call_without_a_policy_is_refused(expert: ServedExpert, web: Web) -> None:
    before = web.connections
    error = await expert.refusal(task="text-classification")  # a caller without a policy
    assert error.reason == "POLICY"
    assert web.connections == before


@dataclass(frozen=True)
class ProviderError:
    """Error response of a provider, and the expected translation."""

    status: int
    headers: Mapping[str, str]
    body: Any
    code: str
    reason: str
    recovery_action: RecoveryAction
    after: float | None = None


PROVIDER_ERRORS = [
    ProviderError(
        429, {"Retry-After": "7"}, {"error": "slow"}, "RESOURCE_EXHAUSTED", "OVERLOADED", RecoveryAction.RETRY, 7
    ),
    ProviderError(
        503, {}, {"error": "loading", "estimated_time": 45.0}, "UNAVAILABLE", "UNAVAILABLE", RecoveryAction.RETRY, 45
    ),
    ProviderError(504, {}, None, "DEADLINE_EXCEEDED", "DEADLINE", RecoveryAction.RETRY),
    ProviderError(404, {}, None, "NOT_FOUND", "MODEL", RecoveryAction.NEXT_CANDIDATE),
    ProviderError(401, {}, {"error": "bad token"}, "FAILED_PRECONDITION", "LOAD_FAILED", RecoveryAction.NEXT_CANDIDATE),
    ProviderError(
        403, {}, {"error": "it is gated"}, "FAILED_PRECONDITION", "LOAD_FAILED", RecoveryAction.NEXT_CANDIDATE
    ),
    ProviderError(400, {}, {"error": ["too long"]}, "INTERNAL", "MODEL_FAILED", RecoveryAction.NEXT_CANDIDATE),
    ProviderError(500, {}, None, "INTERNAL", "MODEL_FAILED", RecoveryAction.NEXT_CANDIDATE),
]


@pytest.mark.parametrize("provider_error", PROVIDER_ERRORS, ids=lambda error: str(error.status))
async def test_provider_error_is_translated(expert: ServedExpert, web: Web, provider_error: ProviderError) -> None:
    web.answer_with(
        "/models/acme/mood", provider_error.body, status=provider_error.status, headers=provider_error.headers
    )
    error = await expert.call_error("text-classification", text="x")
    assert error.code.name == provider_error.code
    assert error.reason == provider_error.reason
    assert recovery_action(error) == provider_error.recovery_action
    assert error.remedy
    assert "hf_test" not in error.message + error.remedy
    assert len(web.bodies("/models/acme/mood")) == 1
    assert (error.retry_after.total_seconds() if error.retry_after else None) == provider_error.after


async def test_gated_model_error_names_its_page_and_the_token_variable(expert: ServedExpert, web: Web) -> None:
    web.answer_with("/models/acme/mood", {"error": "it is gated"}, status=403)
    remedy = (await expert.call_error("text-classification", text="x")).remedy
    assert "https://huggingface.co/acme/mood" in remedy
    assert "HF_TOKEN" in remedy


async def test_loading_model_is_retried(expert: ServedExpert, web: Web) -> None:
    replies = iter([Answer({"error": "loading", "estimated_time": 0.01}, 503), Answer(MOOD)])
    web.answers["/models/acme/mood"] = lambda _: next(replies)
    assert (await expert.call("text-classification", text="x"))["text"] == "glad"
    assert len(web.bodies("/models/acme/mood")) == 2


async def test_provider_out_of_credits_is_suspended_and_its_models_unavailable(expert: ServedExpert, web: Web) -> None:
    web.answer_with("/models/acme/", {"error": "You have exceeded your included credits"}, status=402)
    assert await expert.health("acme/mood") == [SERVING]
    first = await expert.call_error("text-classification", text="x")
    assert first.reason == "LOAD_FAILED"
    assert recovery_action(first) == RecoveryAction.NEXT_CANDIDATE
    again = await expert.call_error("summarization", text="x")
    assert "requires payment" in again.message
    assert again.retry_after
    assert len(web.bodies("/models/acme/")) == 1
    card = await expert.card("summarization")
    assert card.state == MODEL_STATE_FAILED
    assert "requires payment" in card.failure
    assert (await expert.card("text-to-image", "acme/brush-two")).state == MODEL_STATE_READY
    await expert.until(NOT_SERVING, "acme/mood")


async def test_malformed_answer_of_a_provider_selects_the_next_candidate(expert: ServedExpert, web: Web) -> None:
    for invalid_reply in ([], [{"a": 1}], "text", {"labels": 3}):
        web.answer_with("/models/acme/mood", invalid_reply)
        error = await expert.call_error("text-classification", text="x")
        assert error.code.name == "DATA_LOSS"
    web.answer_with("acme/brush", b"no picture", media_type="image/png")
    assert recovery_action(await expert.call_error("text-to-image", text="x")) is RecoveryAction.NEXT_CANDIDATE


async def test_calls_of_one_model_run_concurrently(expert: ServedExpert, web: Web) -> None:
    together = asyncio.Barrier(3)

    async def meet(_: Request) -> Answer:
        await together.wait()
        return Answer(MOOD)

    web.answers["/models/acme/mood"] = meet
    async with asyncio.timeout(10):
        calls = [expert.call("text-classification", text=text) for text in "abc"]
        assert [outputs["text"] for outputs in await asyncio.gather(*calls)] == ["glad"] * 3


async def test_cancelled_call_frees_its_slot(expert: ServedExpert, web: Web) -> None:
    async def never(_: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    web.answers["/models/acme/mood"] = never
    call = asyncio.ensure_future(expert.call("text-classification", text="x"))
    while "/models/acme/mood" not in (await web.arrived.get()).path:
        pass
    assert (await expert.describe()).load.running == 1
    call.cancel()
    await asyncio.wait([call])
    while (await expert.describe()).load.running:
        pass


async def test_expert_without_a_token_starts_with_failed_models(
    remote_environment: None, monkeypatch: pytest.MonkeyPatch, web: Web, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    async with serve_expert("experts.remote", tmp_path) as expert:
        described = await expert.describe()
        assert described.models
        assert {card.state for card in described.models} == {MODEL_STATE_FAILED}
        assert "HF_TOKEN" in described.models[0].failure
        error = await expert.call_error("fill-mask", text="Paris is [MASK].")
        assert error.reason == "LOAD_FAILED"
        assert "HF_TOKEN" in error.remedy
    assert not web.connections


async def test_cached_cards_are_used_when_the_hub_is_down(remote_environment: None, web: Web, tmp_path: Path) -> None:
    async with serve_expert("experts.remote", tmp_path) as expert:
        before = [card.id for card in (await expert.describe()).models]
    request_count = len(web.requests)
    await web.stop()
    async with serve_expert("experts.remote", tmp_path) as expert:
        assert [card.id for card in (await expert.describe()).models] == before
    assert len(web.requests) == request_count


async def test_bundled_cards_are_used_without_hub_and_cache(remote_environment: None, web: Web, tmp_path: Path) -> None:
    web.answer_with("/api/models", status=500)
    async with serve_expert("experts.remote", tmp_path) as expert:
        assert (await expert.card("fill-mask")).id == "google-bert/bert-base-uncased"


async def test_provider_of_a_bundled_model_is_looked_up_once_on_a_thread(
    remote_environment: None, web: Web, tmp_path: Path
) -> None:
    lookups: list[str] = []

    def hub(request: Request) -> Answer:
        if "pipeline_tag" in request.path:
            return Answer(status=500)
        lookups.append(request.path)
        novita = {"providerId": "novita-llama", "status": "live", "task": "conversational"}
        return Answer({"id": "x", "inferenceProviderMapping": {"novita": novita}})

    web.answers["/api/models"] = hub
    web.answer_with(
        "/chat/completions", {"choices": [{"message": {"role": "assistant", "content": "Hi."}, "index": 0}]}
    )
    async with serve_expert("experts.remote", tmp_path) as expert:
        for _ in range(2):
            assert (await expert.call("conversational", text="hello"))["text"] == "Hi."
        web.answers["/api/models"] = lambda _: Answer({"id": "x"})
        error = await expert.call_error("text-to-speech", text="hello")
        assert error.code.name == "NOT_FOUND"
        assert error.reason == "MODEL"
    assert len(lookups) == 1
    assert {body["model"] for body in web.bodies("novita")} == {"novita-llama"}


async def test_configured_endpoint_precedes_providers(
    remote_environment: None, monkeypatch: pytest.MonkeyPatch, web: Web, tmp_path: Path
) -> None:
    endpoints = f'[{{"url": "{web.url}/mine", "task": "text-classification", "id": "us/mood"}}]'
    monkeypatch.setenv("REMOTE_ENDPOINTS", endpoints)
    web.answer_with("/mine", MOOD)
    async with serve_expert("experts.remote", tmp_path) as expert:
        assert (await expert.call("text-classification", text="x"))["text"] == "glad"
        web.answer_with("/mine", status=402)
        await expert.call_error("text-classification", text="x")
        assert (await expert.card("text-classification", "acme/mood")).state == MODEL_STATE_READY
