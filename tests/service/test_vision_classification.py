"""Classification, captions, questions and features of images over gRPC, with tiny trained models."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import torch
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer, VisionEncoderDecoderModel

from services.common.errors import InvalidRequest
from tests.tiny import Served, Tiny
from tests.tiny.pictures import COLOURS, plain, sent
from tests.tiny.tellers import ANSWERS, CAPTIONS, DATE, PAGES, QUESTION, TOTAL, WRITTEN, document

pytestmark = pytest.mark.slow


@pytest.fixture
async def expert(tiny: Tiny) -> AsyncIterator[Served]:
    async with tiny.expert("vision") as expert:
        yield expert


async def test_image_is_classified(expert: Served) -> None:
    for colour in COLOURS:
        out = await expert.ask("image-classification", {"image": sent(plain(colour))}, "tiny/vit", top_k=2)
        assert out["text"] == colour
        assert out["labels"][0]["label"] == colour
        assert len(out["labels"]) == 2
        assert out["labels"][0]["score"] > 0.9


async def test_concurrent_calls_with_different_sizes_equal_sequential_calls(expert: Served) -> None:
    images = [sent(plain(colour, (40 + 20 * index, 64))) for index, colour in enumerate(COLOURS * 3)]
    sequential = [await expert.ask("image-classification", {"image": image}, "tiny/vit") for image in images]
    calls = [expert.ask("image-classification", {"image": image}, "tiny/vit") for image in images]
    assert await asyncio.gather(*calls) == sequential


async def test_zero_shot_classification_uses_the_labels_of_the_request(expert: Served) -> None:
    labels = ["red", "green", "blue"]
    for colour in COLOURS:
        out = await expert.ask(
            "zero-shot-image-classification", {"image": sent(plain(colour))}, candidate_labels=labels
        )
        assert out["text"] == colour
        assert {one["label"] for one in out["labels"]} == set(labels)
        assert sum(one["score"] for one in out["labels"]) == pytest.approx(1, abs=1e-3)


async def test_missing_or_too_long_labels_are_rejected(expert: Served) -> None:
    image = {"image": sent(plain("red"))}
    error = await expert.refusal("zero-shot-image-classification", image)
    assert isinstance(error, InvalidRequest)
    assert "candidate_labels" in str(error)
    assert "tokens" in str(await expert.refusal("zero-shot-image-classification", image, candidate_labels=["x" * 200]))


@pytest.mark.parametrize(
    ("model", "expected"), [("tiny/blip", CAPTIONS), ("tiny/git", CAPTIONS), ("tiny/trocr", WRITTEN)]
)
async def test_image_is_described(expert: Served, model: str, expected: dict[str, str]) -> None:
    calls = [expert.ask("image-to-text", {"image": sent(plain(colour))}, model) for colour in expected]
    assert [out["text"] for out in await asyncio.gather(*calls)] == list(expected.values())


async def test_caption_respects_max_new_tokens(expert: Served) -> None:
    out = await expert.ask("image-to-text", {"image": sent(plain("blue"))}, "tiny/trocr", max_new_tokens=1)
    assert out["text"] == WRITTEN["blue"].split()[0]


async def test_caption_equals_that_of_transformers_alone(expert: Served, tiny: Tiny) -> None:
    out = await expert.ask("image-to-text", {"image": sent(plain("purple"))}, "tiny/trocr", max_new_tokens=6)
    folder = tiny.built("vision", "tiny/trocr")
    features = AutoImageProcessor.from_pretrained(folder)(images=plain("purple"), return_tensors="pt")
    model: Any = VisionEncoderDecoderModel.from_pretrained(folder)
    tokens = model.generate(**features, max_new_tokens=6, do_sample=False)[0]
    assert out["text"] == AutoTokenizer.from_pretrained(folder).decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("model", ["tiny/vilt", "tiny/blip-vqa"])
async def test_question_about_an_image_is_answered(expert: Served, model: str) -> None:
    inputs = [{"image": sent(plain(colour)), "question": QUESTION} for colour in ANSWERS]
    outs = await asyncio.gather(*(expert.ask("visual-question-answering", one, model, top_k=2) for one in inputs))
    assert [out["text"] for out in outs] == list(ANSWERS.values())
    for out in outs:
        assert out["answers"][0]["answer"] == out["text"]
        assert out["answers"][0]["score"] > 0.8


async def test_too_long_question_is_rejected_with_its_port(expert: Served) -> None:
    inputs = {"image": sent(plain("red")), "question": "what " * 100}
    error = await expert.refusal("visual-question-answering", inputs, "tiny/vilt")
    assert isinstance(error, InvalidRequest)
    assert error.port == "question"


@pytest.mark.parametrize("question", [TOTAL, DATE])
async def test_question_is_answered_from_the_best_page_of_a_document(expert: Served, question: str) -> None:
    for colour, answers in PAGES.items():
        out = await expert.ask(
            "document-question-answering", {"image": sent(plain(colour, (80, 80))), "question": question}
        )
        assert out["text"] == answers[question]
        assert out["details"]["answer"] == answers[question]
        assert out["details"]["page"] == 1
        assert out["details"]["score"] > 0.7
    inputs = {"image": document(["red", "red"]), "question": question}
    out = await expert.ask("document-question-answering", inputs)
    assert out["text"] == PAGES["red"][question]


async def test_document_with_too_many_pages_is_rejected(expert: Served) -> None:
    inputs = {"image": document(["red"] * 21), "question": TOTAL}
    error = await expert.refusal("document-question-answering", inputs)
    assert isinstance(error, InvalidRequest)
    assert error.port == "image"
    assert "21 pages" in str(error)


async def test_feature_vector_is_the_normalized_output_of_the_model(expert: Served, tiny: Tiny) -> None:
    out = await expert.ask("image-feature-extraction", {"image": sent(plain("red", (50, 70)))}, "tiny/dinov2")
    folder = tiny.built("vision", "tiny/dinov2")
    features = AutoImageProcessor.from_pretrained(folder)(images=plain("red", (50, 70)), return_tensors="pt")
    with torch.inference_mode():
        vector = AutoModel.from_pretrained(folder)(**features).pooler_output[0]
    assert out["embedding"] == pytest.approx((vector / vector.norm()).tolist(), abs=2e-5)
    assert sum(value * value for value in out["embedding"]) == pytest.approx(1, abs=1e-3)


async def test_similar_images_have_similar_vectors(expert: Served) -> None:
    images = [plain("red"), plain("red", (90, 70)), plain("blue")]
    calls = [expert.ask("image-feature-extraction", {"image": sent(image)}, "tiny/clip") for image in images]
    red, large, blue = (out["embedding"] for out in await asyncio.gather(*calls))
    assert sum(a * b for a, b in zip(red, large, strict=True)) > 0.99
    assert sum(a * b for a, b in zip(red, blue, strict=True)) < 0.9
