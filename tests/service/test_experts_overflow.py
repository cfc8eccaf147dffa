"""A model whose numbers overflow has failed: it does not say that nothing was found, nor nothing at all."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.tiny import Tiny
from tests.tiny.films import RED, filmed, plain
from tests.tiny.lessons import CONTEXT
from tests.tiny.overflown import Overflown
from tests.tiny.pictures import LEFT, sent, square
from tests.tiny.sounds import LOW, recorded, tone

pytestmark = pytest.mark.slow

PICTURE = {"image": sent(square("red", LEFT))}
SOUND = {"audio": recorded(tone(LOW, 1.0))}
FILM = {"video": filmed([plain(RED)] * 5)}
TEXT = {"text": "good morning ."}
TABLE = {"question": "how many ?", "table": {"a": ["1", "2"]}}


@pytest.mark.parametrize(
    ("modality", "task", "model", "inputs"),
    [
        ("text", "text-classification", "tiny/sentiment", TEXT),
        ("text", "token-classification", "tiny/tagger", TEXT),
        ("text", "question-answering", "tiny/answerer", {"question": "where ?", "context": CONTEXT}),
        ("text", "table-question-answering", "tiny/tapas", TABLE),
        ("text", "summarization", "tiny/bart", TEXT),
        ("text", "translation", "tiny/opus-mt-en-de", TEXT),
        ("text", "text2text-generation", "tiny/t5", TEXT),
        ("text", "text-generation", "tiny/story", TEXT),
        ("text", "feature-extraction", "tiny/embedder", TEXT),
        ("vision", "object-detection", "tiny/yolos", PICTURE),
        ("vision", "zero-shot-object-detection", "tiny/owl", PICTURE),
        ("vision", "image-segmentation", "tiny/segformer", PICTURE),
        ("vision", "image-segmentation", "tiny/eomt", PICTURE),
        ("vision", "mask-generation", "tiny/sam", PICTURE),
        ("vision", "image-to-text", "tiny/trocr", PICTURE),
        ("vision", "depth-estimation", "tiny/depth", PICTURE),
        ("audio", "automatic-speech-recognition", "tiny/letters", SOUND),
        ("audio", "audio-classification", "tiny/pitches", SOUND),
        ("audio", "text-to-audio", "tiny/musicgen", TEXT),
        ("audio", "voice-activity-detection", "tiny/activity", SOUND),
        ("video", "video-classification", "tiny/videomae", FILM),
        ("video", "video-to-text", "tiny/git-of-films", FILM),
    ],
)
async def test_a_model_whose_numbers_overflow_says_that_it_failed(
    tiny: Tiny, modality: str, task: str, model: str, inputs: Mapping[str, Any]
) -> None:
    labels = {"candidate_labels": ["red"]} if task.startswith("zero") else {}
    async with Overflown(tiny.folder).expert(modality) as expert:
        error = await expert.refusal(task, inputs, model, **labels)
    assert (error.code.name, error.reason) == ("INTERNAL", "MODEL_FAILED")
    assert any(words in error.message for words in ("not finite", "is nan")), error.message
    assert error.remedy


async def test_people_are_not_missing_because_their_finder_overflowed(tiny: Tiny) -> None:
    tiny.built("vision", "PekingU/rtdetr_r18vd_coco_o365")
    async with Overflown(tiny.folder).expert("vision") as expert:
        error = await expert.refusal("keypoint-detection", PICTURE, "tiny/vitpose")
    assert (error.code.name, "not finite" in error.message) == ("INTERNAL", True)
