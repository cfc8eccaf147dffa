"""Models that follow prompts about images: descriptions, questions about images and documents, in batches."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from experts.host.handler import NO_ANSWER
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generated_text import GeneratedText
from experts.torch_host.vision_language import load_vision_language_model
from experts.video.frames import encode_video
from experts.video.understanding import video_to_text
from experts.vision.image_to_text import image_to_text
from experts.vision.prompted import PromptedAnswerer, PromptedDocumentAnswerer
from experts.vision.visual_question_answering import visual_question_answering
from services.common.errors import FailedPrecondition, InvalidRequest
from tests.tiny import ExpertClient, TinyModels
from tests.tiny.image_files import solid_image, to_media
from tests.tiny.image_text import make_tiff
from tests.tiny.video_files import RED, solid_frame
from tests.tiny.vision_language import PAGE, generate_directly

pytest.importorskip("num2words")
pytestmark = pytest.mark.slow

DESCRIBE, ANSWER, READ = "image-to-text", "visual-question-answering", "document-question-answering"
IMAGES = {
    "tiny/llava": "<image>",
    "tiny/qwen-vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "tiny/smolvlm": "<image>",
}
"""How each chat template writes an image."""
SIZES = ((64, 64), (48, 64), (64, 30))


@pytest.fixture
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    async with tiny_models.serve("vision") as expert:
        yield expert


@pytest.mark.parametrize("model", IMAGES)
async def test_description_equals_that_of_transformers_alone(
    expert: ExpertClient, tiny_models: TinyModels, model: str
) -> None:
    image = solid_image("purple")
    out = await expert.call(DESCRIBE, {"image": to_media(image)}, model, max_new_tokens=6)
    prompt = f"<bos>{IMAGES[model]}Describe in one sentence what the image shows.>"
    assert out["text"] == generate_directly(tiny_models.build("vision", model), prompt, [image], 6)


async def test_florence_describes_by_its_own_prompt(expert: ExpertClient, tiny_models: TinyModels) -> None:
    image = solid_image("green")
    out = await expert.call(DESCRIBE, {"image": to_media(image)}, "tiny/florence", max_new_tokens=6)
    folder = tiny_models.build("vision", "tiny/florence")
    assert out["text"] == generate_directly(folder, "<DETAILED_CAPTION>", [image], 6)


@pytest.mark.parametrize("model", [*IMAGES, "tiny/florence"])
async def test_descriptions_of_a_batch_equal_those_of_single_calls(expert: ExpertClient, model: str) -> None:
    images = [to_media(solid_image(colour, size)) for colour in ("red", "blue") for size in SIZES]
    alone = [await expert.call(DESCRIBE, {"image": image}, model, max_new_tokens=6) for image in images]
    calls = [expert.call(DESCRIBE, {"image": image}, model, max_new_tokens=6) for image in images]
    assert await asyncio.gather(*calls) == alone


@pytest.mark.parametrize("model", IMAGES)
async def test_questions_of_different_lengths_have_the_same_answers_in_a_batch(
    expert: ExpertClient, model: str
) -> None:
    inputs = [
        {"image": to_media(solid_image("red", size)), "question": "what is this?" * count}
        for count, size in enumerate(SIZES, 1)
    ]
    alone = [await expert.call(ANSWER, each, model) for each in inputs]
    assert await asyncio.gather(*(expert.call(ANSWER, each, model) for each in inputs)) == alone
    assert alone[0]["answers"][0]["answer"] == alone[0]["text"]


async def test_document_is_answered_from_its_most_certain_page(expert: ExpertClient) -> None:
    question = {"question": "what is the total?"}
    pages = [
        await expert.call(READ, {"image": make_tiff([page]), **question}, "tiny/llava") for page in ("red", "blue")
    ]
    both = await expert.call(READ, {"image": make_tiff(["red", "blue"]), **question}, "tiny/llava")
    best = max(range(2), key=lambda page: pages[page]["details"]["score"])
    assert both["text"] == pages[best]["text"]
    assert both["details"]["page"] == best + 1


def load(tiny_models: TinyModels, kind: Any) -> Any:
    folder = tiny_models.build("vision", "tiny/llava")
    checkpoint = Checkpoint.fetch("tiny/llava", "cpu")
    assert checkpoint.folder == folder
    return kind(checkpoint, *load_vision_language_model(checkpoint))


def test_page_without_an_answer_is_not_chosen(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = load(tiny_models, PromptedDocumentAnswerer)
    texts = {(1,): "None.", (2,): "12 euros"}
    monkeypatch.setattr(handler, "decode", lambda text: texts[tuple(text.tokens)])
    nothing, answer = GeneratedText([1], 0.9), GeneratedText([2], 0.5)
    assert handler.finish([nothing, answer])["details"] == {"answer": "12 euros", "score": 0.5, "page": 2}
    assert handler.finish([nothing])["text"] == NO_ANSWER


def test_special_tokens_in_a_question_are_removed(tiny_models: TinyModels) -> None:
    handler = load(tiny_models, PromptedAnswerer)
    image = to_media(solid_image("red"))
    item = handler.prepare({"image": image, "question": "what <image> is <eos> this?"}, {})
    tokens = item.tensors["input_ids"][0].tolist()
    assert tokens.count(handler.tokenizer.convert_tokens_to_ids("<image>")) == 16
    assert handler.tokenizer.eos_token_id not in tokens


def test_too_long_question_is_rejected(tiny_models: TinyModels) -> None:
    handler = load(tiny_models, PromptedAnswerer)
    with pytest.raises(InvalidRequest) as caught:
        handler.prepare({"image": to_media(solid_image("red")), "question": "x" * 2000}, {})
    assert caught.value.port == "question"


async def test_page_is_read_by_a_model_that_writes_doctags(expert: ExpertClient) -> None:
    out = await expert.call(DESCRIBE, {"image": to_media(solid_image("white"))}, "tiny/docling")
    assert out["text"] == "a b\nc\td\n1\t2"
    assert out["details"] == {"doctags": PAGE}


async def test_pages_of_a_batch_equal_those_of_single_calls(expert: ExpertClient) -> None:
    images = [to_media(solid_image("white", size)) for size in SIZES]
    alone = [await expert.call(DESCRIBE, {"image": image}, "tiny/docling", max_new_tokens=30) for image in images]
    calls = [expert.call(DESCRIBE, {"image": image}, "tiny/docling", max_new_tokens=30) for image in images]
    assert await asyncio.gather(*calls) == alone


@pytest.mark.parametrize("model", ["tiny/florence", "tiny/docling"])
def test_model_with_prompts_of_its_own_is_refused_for_questions(tiny_models: TinyModels, model: str) -> None:
    tiny_models.build("vision", model)
    with pytest.raises(FailedPrecondition, match="does not answer questions"):
        visual_question_answering(model, "cpu")


def test_model_without_a_chat_template_is_refused(tiny_models: TinyModels) -> None:
    copy = tiny_models.folder / "tiny" / "no-template"
    shutil.copytree(tiny_models.build("vision", "tiny/qwen-vl"), copy)
    (copy / "chat_template.jinja").unlink()
    with pytest.raises(FailedPrecondition, match="has no chat template"):
        image_to_text("tiny/no-template", "cpu")


def test_missing_torchvision_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Processor:
        @classmethod
        def from_pretrained(cls, *_: Any, **__: Any) -> Any:
            raise ImportError("\nProcessor requires the Torchvision library but it was not found in your environment.")

    (tmp_path / "config.json").write_text(json.dumps({}))
    checkpoint = Checkpoint("org/name", tmp_path, "", None, None)  # type: ignore[arg-type]  # of no use here
    with pytest.raises(FailedPrecondition, match="a package that is not installed: torchvision"):
        checkpoint.processor(Processor)


async def test_video_is_described_by_frames_of_one_prompt(tiny_models: TinyModels) -> None:
    tiny_models.build("video", "tiny/frames")
    video = encode_video([solid_frame(RED, 64, 48)] * 12, 12, "clip")
    handler: Any = await asyncio.to_thread(video_to_text, "tiny/frames", "cpu")
    item = await asyncio.to_thread(handler.prepare, {"video": video}, {"max_new_tokens": 4})
    assert item.tensors["pixel_values"].shape[1] == 8
    async with tiny_models.serve("video") as expert:
        one = await expert.call("video-to-text", {"video": video}, "tiny/frames", max_new_tokens=4)
        both = await asyncio.gather(
            *(expert.call("video-to-text", {"video": video}, "tiny/frames", max_new_tokens=4) for _ in range(2))
        )
    assert both == [one, one]
