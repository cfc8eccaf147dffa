"""Inputs at the limits of the torch experts are accepted, and those one above are refused with port and remedy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from experts.audio.waveforms import DEFAULT_MAX_SECONDS, decode_samples
from experts.host.handler import Handler, Media
from experts.host.media import read_audio
from experts.host.media.audio import MAX_SECONDS
from services.common.errors import InvalidRequest
from tests.tiny import TinyModels
from tests.tiny.audio_files import to_wav
from tests.tiny.image_files import solid_image, to_media
from tests.tiny.image_text import make_tiff
from tests.tiny.task_examples import Case, RunningCall, default_parameters
from tests.tiny.text_examples import CONTEXT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

IMAGE = to_media(solid_image("red"))


def words(count: int) -> str:
    return " ".join(["soup"] * count)


def rows(count: int) -> Media:
    return Media(("city,people\n" + "rome,2\n" * count).encode(), "text/csv", "table.csv")


@dataclass(frozen=True)
class Limit:
    """An input whose size has a limit."""

    case: Case
    port: str
    make: Callable[[int], Mapping[str, Any]]
    """Inputs of a size."""
    size: int | None = None
    """The limit; None if it follows from the model's configuration."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    runs: bool = True
    """Whether the tiny model runs within a moment at the limit."""

    def prepare(self, handler: Handler, size: int) -> Any:
        return handler.prepare(self.make(size), default_parameters(self.case.task, **self.parameters))

    def is_accepted(self, handler: Handler, size: int) -> bool:
        try:
            self.prepare(handler, size)
        except InvalidRequest:
            return False
        return True

    def find(self, handler: Handler) -> int:
        """Returns the largest size that is accepted."""
        low, high = 1, 2
        while self.is_accepted(handler, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.is_accepted(handler, middle) else (low, middle)
        return low


def character_limit(modality: str, task: str, model: str, size: int) -> Limit:
    return Limit(Case(modality, task, model), "text", lambda count: {"text": "a" * count}, size, runs=False)


def text_limit(task: str, model: str, **parameters: Any) -> Limit:
    return Limit(Case("text", task, model), "text", lambda count: {"text": words(count)}, parameters=parameters)


LIMITS = [
    text_limit("text-classification", "tiny/sentiment"),
    text_limit("zero-shot-classification", "tiny/inference", candidate_labels=["sports", "cooking"]),
    text_limit("token-classification", "tiny/tagger"),
    text_limit("summarization", "tiny/bart"),
    text_limit("translation", "tiny/opus-mt-en-de"),
    text_limit("translation", "tiny/m2m100", source_language="en", target_language="de"),
    text_limit("text2text-generation", "tiny/t5", max_new_tokens=4),
    text_limit("text-generation", "tiny/story", max_new_tokens=4),
    text_limit("conversational", "tiny/chat", max_new_tokens=4),
    text_limit("feature-extraction", "tiny/embedder"),
    Limit(Case("text", "fill-mask", "tiny/guesser"), "text", lambda count: {"text": f"[MASK] {words(count)}"}),
    Limit(
        Case("text", "question-answering", "tiny/answerer"),
        "question",
        lambda count: {"question": words(count), "context": CONTEXT},
    ),
    Limit(
        Case("text", "question-answering", "tiny/answerer"),
        "context",
        lambda count: {"question": "where ?", "context": words(count)},
    ),
    Limit(
        Case("text", "table-question-answering", "tiny/tapas"),
        "table",
        lambda count: {"question": "how many ?", "table": rows(count)},
    ),
    Limit(
        Case("text", "sentence-similarity", "tiny/embedder"),
        "sentences",
        lambda count: {"text": "soup", "sentences": ["soup", words(count)]},
    ),
    Limit(
        Case("vision", "image-classification", "tiny/vit"),
        "image",
        lambda side: {"image": to_media(solid_image("red", (10, side + 9)))},
        291,
    ),
    Limit(
        Case("vision", "visual-question-answering", "tiny/vilt"),
        "question",
        lambda count: {"image": IMAGE, "question": " ".join(["red"] * count)},
    ),
    Limit(
        Case("vision", "document-question-answering", "tiny/donut"),
        "image",
        lambda count: {"image": make_tiff(["red"] * count), "question": "what ?"},
        20,
    ),
    Limit(
        Case("audio", "text-to-speech", "tiny/vits"), "text", lambda count: {"text": "a" * count}, 10_000, runs=False
    ),
    Limit(
        Case("audio", "text-to-audio", "tiny/musicgen"), "text", lambda count: {"text": "a" * count}, 5_000, runs=False
    ),
    Limit(
        Case("video", "text-to-video", "tiny/director"), "text", lambda count: {"text": "a" * count}, 5_000, runs=False
    ),
    Limit(
        Case("diffusion", "text-to-image", "tiny/sd"), "text", lambda count: {"text": "a" * count}, 5_000, runs=False
    ),
    Limit(
        Case("diffusion", "image-to-image", "tiny/sd"),
        "image",
        lambda side: {"image": to_media(solid_image("red", (16, side + 15))), "instruction": "a"},
        113,
        runs=False,
    ),
    Limit(
        Case("diffusion", "image-super-resolution", "tiny/upscaler"),
        "image",
        lambda side: {"image": to_media(solid_image("red", (512, side)))},
        512,
        runs=False,
    ),
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.case.task}-{limit.case.model}-{limit.port}")
def test_input_at_the_limit_is_accepted_and_the_next_larger_one_refused(limit: Limit, tiny_models: TinyModels) -> None:
    handler = limit.case.load(tiny_models)
    size = limit.find(handler)
    assert size == (limit.size or size)
    item = limit.prepare(handler, size)
    if limit.runs:
        assert handler.finish(handler.run([item], RunningCall())[0])
    with pytest.raises(InvalidRequest) as refused:
        limit.prepare(handler, size + 1)
    assert refused.value.port == limit.port
    assert refused.value.remedy


def test_duration_of_music_at_the_limit_is_accepted_and_a_longer_one_refused(tiny_models: TinyModels) -> None:
    handler = Case("audio", "text-to-audio", "tiny/musicgen").load(tiny_models)
    assert handler.prepare({"text": "drums"}, {"duration": 30.0})
    with pytest.raises(InvalidRequest, match="the limit of tiny/musicgen is 30 s") as refused:
        handler.prepare({"text": "drums"}, {"duration": 30.5})
    assert refused.value.port == "parameters.duration"
    assert refused.value.remedy


def silence(seconds: float, rate: int) -> Media:
    return to_wav(np.zeros(round(seconds * rate), np.float32), rate, "long.wav")


@pytest.mark.parametrize(
    ("read", "longest"),
    [
        (lambda media: decode_samples(media, 1000), DEFAULT_MAX_SECONDS),
        (lambda media: read_audio(media, rate=1000)[0], MAX_SECONDS),
    ],
    ids=["whole recording", "bounded recording"],
)
def test_recording_at_the_limit_is_read_and_a_longer_one_refused(read: Callable[[Media], Any], longest: float) -> None:
    assert len(read(silence(longest, 1000))) == longest * 1000
    with pytest.raises(InvalidRequest, match=r"long\.wav") as refused:
        read(silence(longest + 1, 1000))
    assert refused.value.port == "audio"
    assert refused.value.remedy
