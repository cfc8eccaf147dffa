"""Models with non-finite outputs fail, instead of returning empty or wrong results."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.tiny import TinyModels
from tests.tiny.audio_files import LOW, make_tone, to_wav
from tests.tiny.image_files import LEFT, square_image, to_media
from tests.tiny.non_finite import NonFiniteModels
from tests.tiny.text_examples import CONTEXT
from tests.tiny.video_files import RED, encode_frames, solid_frame

pytestmark = pytest.mark.slow

PICTURE = {"image": to_media(square_image("red", LEFT))}
AUDIO = {"audio": to_wav(make_tone(LOW, 1.0))}
VIDEO = {"video": encode_frames([solid_frame(RED)] * 5)}
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
        ("audio", "automatic-speech-recognition", "tiny/letters", AUDIO),
        ("audio", "audio-classification", "tiny/pitches", AUDIO),
        ("audio", "text-to-audio", "tiny/musicgen", TEXT),
        ("audio", "voice-activity-detection", "tiny/activity", AUDIO),
        ("video", "video-classification", "tiny/videomae", VIDEO),
        ("video", "video-to-text", "tiny/git-video", VIDEO),
    ],
)
async def test_non_finite_model_fails(
    tiny_models: TinyModels, modality: str, task: str, model: str, inputs: Mapping[str, Any]
) -> None:
    labels = {"candidate_labels": ["red"]} if task.startswith("zero") else {}
    async with NonFiniteModels(tiny_models.folder).serve(modality) as expert:
        error = await expert.call_error(task, inputs, model, **labels)
    assert error.code.name == "INTERNAL"
    assert error.reason == "MODEL_FAILED"
    assert any(text in error.message for text in ("not finite", "is nan")), error.message
    assert error.remedy


async def test_non_finite_person_detector_fails(tiny_models: TinyModels) -> None:
    tiny_models.build("vision", "PekingU/rtdetr_r18vd_coco_o365")
    async with NonFiniteModels(tiny_models.folder).serve("vision") as expert:
        error = await expert.call_error("keypoint-detection", PICTURE, "tiny/vitpose")
    assert error.code.name == "INTERNAL"
    assert "not finite" in error.message
