"""Pictures named, described and asked about, through gRPC, by tiny models that were taught what they should say."""

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


async def test_a_classifier_tells_the_colours_apart(expert: Served) -> None:
    for colour in COLOURS:
        out = await expert.ask("image-classification", {"image": sent(plain(colour))}, "tiny/vit", top_k=2)
        assert out["text"] == out["labels"][0]["label"] == colour
        assert len(out["labels"]) == 2
        assert out["labels"][0]["score"] > 0.9


async def test_pictures_of_any_sizes_together_give_what_they_give_alone(expert: Served) -> None:
    pictures = [sent(plain(colour, (40 + 20 * at, 64))) for at, colour in enumerate(COLOURS * 3)]
    alone = [await expert.ask("image-classification", {"image": one}, "tiny/vit") for one in pictures]
    asked = [expert.ask("image-classification", {"image": one}, "tiny/vit") for one in pictures]
    assert await asyncio.gather(*asked) == alone


async def test_labels_of_the_request_are_told_apart(expert: Served) -> None:
    labels = ["red", "green", "blue"]
    for colour in COLOURS:
        out = await expert.ask(
            "zero-shot-image-classification", {"image": sent(plain(colour))}, candidate_labels=labels
        )
        assert out["text"] == colour
        assert {one["label"] for one in out["labels"]} == set(labels)
        assert sum(one["score"] for one in out["labels"]) == pytest.approx(1, abs=1e-3)


async def test_a_request_without_labels_or_with_an_endless_one_is_told_so(expert: Served) -> None:
    image = {"image": sent(plain("red"))}
    error = await expert.refusal("zero-shot-image-classification", image)
    assert isinstance(error, InvalidRequest)
    assert "candidate_labels" in str(error)
    assert "tokens" in str(await expert.refusal("zero-shot-image-classification", image, candidate_labels=["x" * 200]))


@pytest.mark.parametrize(("model", "said"), [("tiny/blip", CAPTIONS), ("tiny/git", CAPTIONS), ("tiny/trocr", WRITTEN)])
async def test_what_a_picture_shows_is_put_into_words(expert: Served, model: str, said: dict[str, str]) -> None:
    asked = [expert.ask("image-to-text", {"image": sent(plain(colour))}, model) for colour in said]
    assert [out["text"] for out in await asyncio.gather(*asked)] == list(said.values())


async def test_a_caption_is_no_longer_than_asked_for(expert: Served) -> None:
    out = await expert.ask("image-to-text", {"image": sent(plain("blue"))}, "tiny/trocr", max_new_tokens=1)
    assert out["text"] == WRITTEN["blue"].split()[0]


async def test_words_are_those_of_the_model_called_directly(expert: Served, tiny: Tiny) -> None:
    out = await expert.ask("image-to-text", {"image": sent(plain("purple"))}, "tiny/trocr", max_new_tokens=6)
    folder = tiny.built("vision", "tiny/trocr")
    seen = AutoImageProcessor.from_pretrained(folder)(images=plain("purple"), return_tensors="pt")
    model: Any = VisionEncoderDecoderModel.from_pretrained(folder)
    tokens = model.generate(**seen, max_new_tokens=6, do_sample=False)[0]
    assert out["text"] == AutoTokenizer.from_pretrained(folder).decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("model", ["tiny/vilt", "tiny/blip-vqa"])
async def test_questions_about_a_picture_are_answered(expert: Served, model: str) -> None:
    inputs = [{"image": sent(plain(colour)), "question": QUESTION} for colour in ANSWERS]
    outs = await asyncio.gather(*(expert.ask("visual-question-answering", one, model, top_k=2) for one in inputs))
    assert [out["text"] for out in outs] == list(ANSWERS.values())
    for out in outs:
        assert out["answers"][0]["answer"] == out["text"]
        assert out["answers"][0]["score"] > 0.8


async def test_a_question_that_is_too_long_is_refused_by_its_port(expert: Served) -> None:
    inputs = {"image": sent(plain("red")), "question": "what " * 100}
    error = await expert.refusal("visual-question-answering", inputs, "tiny/vilt")
    assert isinstance(error, InvalidRequest)
    assert error.port == "question"


@pytest.mark.parametrize("question", [TOTAL, DATE])
async def test_a_document_is_asked_page_by_page(expert: Served, question: str) -> None:
    for colour, answers in PAGES.items():
        out = await expert.ask(
            "document-question-answering", {"image": sent(plain(colour, (80, 80))), "question": question}
        )
        assert out["text"] == out["details"]["answer"] == answers[question]
        assert out["details"]["page"] == 1
        assert out["details"]["score"] > 0.7
    inputs = {"image": document(["red", "red"]), "question": question}
    out = await expert.ask("document-question-answering", inputs)
    assert out["text"] == PAGES["red"][question]


async def test_a_document_of_too_many_pages_is_refused(expert: Served) -> None:
    inputs = {"image": document(["red"] * 21), "question": TOTAL}
    error = await expert.refusal("document-question-answering", inputs)
    assert isinstance(error, InvalidRequest)
    assert error.port == "image"
    assert "21 pages" in str(error)


async def test_vectors_of_pictures_are_those_of_the_model_and_have_length_1(expert: Served, tiny: Tiny) -> None:
    out = await expert.ask("image-feature-extraction", {"image": sent(plain("red", (50, 70)))}, "tiny/dinov2")
    folder = tiny.built("vision", "tiny/dinov2")
    seen = AutoImageProcessor.from_pretrained(folder)(images=plain("red", (50, 70)), return_tensors="pt")
    with torch.inference_mode():
        vector = AutoModel.from_pretrained(folder)(**seen).pooler_output[0]
    assert out["embedding"] == pytest.approx((vector / vector.norm()).tolist(), abs=2e-5)
    assert sum(value * value for value in out["embedding"]) == pytest.approx(1, abs=1e-3)


async def test_pictures_of_a_kind_are_near_one_another(expert: Served) -> None:
    pictures = [plain("red"), plain("red", (90, 70)), plain("blue")]
    asked = [expert.ask("image-feature-extraction", {"image": sent(one)}, "tiny/clip") for one in pictures]
    red, large, blue = (out["embedding"] for out in await asyncio.gather(*asked))
    assert sum(a * b for a, b in zip(red, large, strict=True)) > 0.99
    assert sum(a * b for a, b in zip(red, blue, strict=True)) < 0.9
