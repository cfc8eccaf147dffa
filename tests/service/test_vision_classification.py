"""Classification, captions, questions and features of images over gRPC, with tiny trained models."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import torch
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer, VisionEncoderDecoderModel

from services.common.errors import InvalidRequest
from tests.tiny import ExpertClient, TinyModels
from tests.tiny.image_files import COLOURS, solid_image, to_media
from tests.tiny.image_text import ANSWERS, CAPTIONS, DATE, PAGES, QUESTION, TOTAL, WRITTEN, make_tiff

pytestmark = pytest.mark.slow


@pytest.fixture
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    async with tiny_models.serve("vision") as expert:
        yield expert


async def test_image_is_classified(expert: ExpertClient) -> None:
    for colour in COLOURS:
        out = await expert.call("image-classification", {"image": to_media(solid_image(colour))}, "tiny/vit", top_k=2)
        assert out["text"] == colour
        assert out["labels"][0]["label"] == colour
        assert len(out["labels"]) == 2
        assert out["labels"][0]["score"] > 0.9


async def test_concurrent_calls_with_different_sizes_equal_sequential_calls(expert: ExpertClient) -> None:
    images = [to_media(solid_image(colour, (40 + 20 * index, 64))) for index, colour in enumerate(COLOURS * 3)]
    sequential = [await expert.call("image-classification", {"image": image}, "tiny/vit") for image in images]
    calls = [expert.call("image-classification", {"image": image}, "tiny/vit") for image in images]
    assert await asyncio.gather(*calls) == sequential


async def test_zero_shot_classification_uses_the_labels_of_the_request(expert: ExpertClient) -> None:
    labels = ["red", "green", "blue"]
    for colour in COLOURS:
        out = await expert.call(
            "zero-shot-image-classification", {"image": to_media(solid_image(colour))}, candidate_labels=labels
        )
        assert out["text"] == colour
        assert {one["label"] for one in out["labels"]} == set(labels)
        assert sum(one["score"] for one in out["labels"]) == pytest.approx(1, abs=1e-3)


async def test_siglip_scores_each_label_on_its_own(expert: ExpertClient) -> None:
    labels = ["red", "green", "blue"]
    out = await expert.call(
        "zero-shot-image-classification",
        {"image": to_media(solid_image("green"))},
        "tiny/siglip",
        candidate_labels=labels,
    )
    assert out["text"] == "green"
    assert sum(label["score"] for label in out["labels"]) > 1.1


async def test_missing_or_too_long_labels_are_rejected(expert: ExpertClient) -> None:
    image = {"image": to_media(solid_image("red"))}
    error = await expert.call_error("zero-shot-image-classification", image)
    assert isinstance(error, InvalidRequest)
    assert "candidate_labels" in str(error)
    assert "tokens" in str(
        await expert.call_error("zero-shot-image-classification", image, candidate_labels=["x" * 200])
    )


@pytest.mark.parametrize(
    ("model", "expected"), [("tiny/blip", CAPTIONS), ("tiny/git", CAPTIONS), ("tiny/trocr", WRITTEN)]
)
async def test_image_is_described(expert: ExpertClient, model: str, expected: dict[str, str]) -> None:
    calls = [expert.call("image-to-text", {"image": to_media(solid_image(colour))}, model) for colour in expected]
    assert [out["text"] for out in await asyncio.gather(*calls)] == list(expected.values())


async def test_caption_respects_max_new_tokens(expert: ExpertClient) -> None:
    out = await expert.call("image-to-text", {"image": to_media(solid_image("blue"))}, "tiny/trocr", max_new_tokens=1)
    assert out["text"] == WRITTEN["blue"].split()[0]


async def test_caption_equals_that_of_transformers_alone(expert: ExpertClient, tiny_models: TinyModels) -> None:
    out = await expert.call("image-to-text", {"image": to_media(solid_image("purple"))}, "tiny/trocr", max_new_tokens=6)
    folder = tiny_models.build("vision", "tiny/trocr")
    features = AutoImageProcessor.from_pretrained(folder)(images=solid_image("purple"), return_tensors="pt")
    model: Any = VisionEncoderDecoderModel.from_pretrained(folder)
    tokens = model.generate(**features, max_new_tokens=6, do_sample=False)[0]
    assert out["text"] == AutoTokenizer.from_pretrained(folder).decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("model", ["tiny/vilt", "tiny/blip-vqa"])
async def test_question_about_an_image_is_answered(expert: ExpertClient, model: str) -> None:
    inputs = [{"image": to_media(solid_image(colour)), "question": QUESTION} for colour in ANSWERS]
    outs = await asyncio.gather(*(expert.call("visual-question-answering", one, model, top_k=2) for one in inputs))
    assert [out["text"] for out in outs] == list(ANSWERS.values())
    for out in outs:
        assert out["answers"][0]["answer"] == out["text"]
        assert out["answers"][0]["score"] > 0.8


async def test_too_long_question_is_rejected_with_its_port(expert: ExpertClient) -> None:
    inputs = {"image": to_media(solid_image("red")), "question": "what " * 100}
    error = await expert.call_error("visual-question-answering", inputs, "tiny/vilt")
    assert isinstance(error, InvalidRequest)
    assert error.port == "question"


@pytest.mark.parametrize("question", [TOTAL, DATE])
async def test_question_is_answered_from_the_best_page_of_a_document(expert: ExpertClient, question: str) -> None:
    for colour, answers in PAGES.items():
        out = await expert.call(
            "document-question-answering", {"image": to_media(solid_image(colour, (80, 80))), "question": question}
        )
        assert out["text"] == answers[question]
        assert out["details"]["answer"] == answers[question]
        assert out["details"]["page"] == 1
        assert out["details"]["score"] > 0.7
    inputs = {"image": make_tiff(["red", "red"]), "question": question}
    out = await expert.call("document-question-answering", inputs)
    assert out["text"] == PAGES["red"][question]


async def test_document_with_too_many_pages_is_rejected(expert: ExpertClient) -> None:
    inputs = {"image": make_tiff(["red"] * 21), "question": TOTAL}
    error = await expert.call_error("document-question-answering", inputs)
    assert isinstance(error, InvalidRequest)
    assert error.port == "image"
    assert "21 pages" in str(error)


async def test_feature_vector_is_the_normalized_output_of_the_model(
    expert: ExpertClient, tiny_models: TinyModels
) -> None:
    out = await expert.call(
        "image-feature-extraction", {"image": to_media(solid_image("red", (50, 70)))}, "tiny/dinov2"
    )
    folder = tiny_models.build("vision", "tiny/dinov2")
    features = AutoImageProcessor.from_pretrained(folder)(images=solid_image("red", (50, 70)), return_tensors="pt")
    with torch.inference_mode():
        vector = AutoModel.from_pretrained(folder)(**features).pooler_output[0]
    assert out["embedding"] == pytest.approx((vector / vector.norm()).tolist(), abs=2e-5)
    assert sum(value * value for value in out["embedding"]) == pytest.approx(1, abs=1e-3)


async def test_similar_images_have_similar_vectors(expert: ExpertClient) -> None:
    images = [solid_image("red"), solid_image("red", (90, 70)), solid_image("blue")]
    calls = [expert.call("image-feature-extraction", {"image": to_media(image)}, "tiny/clip") for image in images]
    red, large, blue = (out["embedding"] for out in await asyncio.gather(*calls))
    assert sum(a * b for a, b in zip(red, large, strict=True)) > 0.99
    assert sum(a * b for a, b in zip(red, blue, strict=True)) < 0.9
