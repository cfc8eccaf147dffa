"""Golden cases of the models: an input, and a property that the outputs of a model with its real weights have."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image, ImageDraw

from experts.host.handler import Media, Outputs
from experts.host.media import png
from tests.tiny.video_files import decode_frames, encode_frames

_DATA = Path(__file__).parents[1] / "data"
_MEDIA_TYPES = {".jpg": "image/jpeg", ".png": "image/png", ".wav": "audio/wav"}
_FILM_FRAMES, _FILM_STEP, _FILM_SIDE = 24, 4, 384

MIN_CONTRAST = 5.0
"""Standard deviation of the pixels, of 255, below which a picture counts as blank."""
MIN_LOUDNESS = 0.001
"""Root mean square of the samples, of 1, below which a recording counts as silent."""


@dataclass(frozen=True)
class Property:
    """A property of the outputs of a call; it can be sent to another process."""

    description: str
    holds: Callable[[Outputs], bool]


@dataclass(frozen=True)
class Case:
    """One call and the expected property of its outputs."""

    inputs: Mapping[str, Any]
    """As tests.tiny.ExpertClient takes them; a file is a function that returns it."""
    expected: Property
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def read_inputs(self) -> dict[str, Any]:
        return {name: value() if callable(value) else value for name, value in self.inputs.items()}


def contains(port: str, *alternatives: str) -> Property:
    """The text has at least one of the alternatives, in any case."""
    return Property(f"{port} contains {_any_of(alternatives)}", partial(_contains, port, alternatives))


def names(port: str, key: str, *alternatives: str) -> Property:
    """One of the items of a list has one of the alternatives under its key, in any case."""
    description = f"an item of {port} has the {key} {_any_of(alternatives)}"
    return Property(description, partial(_names, port, key, alternatives))


def is_confident(min_score: float) -> Property:
    """The best label has a score that an untrained classifier does not reach."""
    return Property(f"the best label has a score of {min_score:g} or more", partial(_is_confident, min_score))


def has_items(port: str) -> Property:
    return Property(f"{port} are not empty", partial(_has_items, port))


def is_vector(port: str, min_size: int) -> Property:
    return Property(f"{port} is a finite vector of {min_size} or more numbers", partial(_is_vector, port, min_size))


def has_best(port: str, position: int) -> Property:
    return Property(f"the highest of {port} is number {position + 1}", partial(_has_best, port, position))


def is_picture(min_side: int) -> Property:
    description = f"image has sides of {min_side} pixels or more and is not blank"
    return Property(description, partial(_is_picture, min_side))


def is_sound(min_seconds: float) -> Property:
    return Property(f"audio lasts {min_seconds:g} s or longer and is not silent", partial(_is_sound, min_seconds))


def is_film(min_frames: int) -> Property:
    return Property(f"video has {min_frames} or more frames that differ", partial(_is_film, min_frames))


def _any_of(alternatives: tuple[str, ...]) -> str:
    return " or ".join(map(repr, alternatives))


def _contains(port: str, alternatives: tuple[str, ...], outputs: Outputs) -> bool:
    return any(text.casefold() in outputs[port].casefold() for text in alternatives)


def _names(port: str, key: str, alternatives: tuple[str, ...], outputs: Outputs) -> bool:
    expected = {text.casefold() for text in alternatives}
    return any(str(item[key]).strip().casefold() in expected for item in outputs[port])


def _is_confident(min_score: float, outputs: Outputs) -> bool:
    return max((float(label["score"]) for label in outputs["labels"]), default=0.0) >= min_score


def _has_items(port: str, outputs: Outputs) -> bool:
    return len(outputs[port]) > 0


def _is_vector(port: str, min_size: int, outputs: Outputs) -> bool:
    values = np.asarray(outputs[port], dtype=float)
    return values.ndim == 1 and len(values) >= min_size and bool(np.isfinite(values).all()) and bool(values.any())


def _has_best(port: str, position: int, outputs: Outputs) -> bool:
    return int(np.argmax(outputs[port])) == position


def _is_picture(min_side: int, outputs: Outputs) -> bool:
    with Image.open(io.BytesIO(outputs["image"].content)) as image:
        pixels = np.asarray(image.convert("L"), dtype=float)
    return min(pixels.shape) >= min_side and float(pixels.std()) >= MIN_CONTRAST


def _is_sound(min_seconds: float, outputs: Outputs) -> bool:
    samples, rate = soundfile.read(io.BytesIO(outputs["audio"].content))
    loudness = float(np.sqrt(np.mean(np.square(samples, dtype=float))))
    return len(samples) / rate >= min_seconds and loudness >= MIN_LOUDNESS


def _is_film(min_frames: int, outputs: Outputs) -> bool:
    frames, _rate = decode_frames(outputs["video"])
    return len(frames) >= min_frames and any(bool((frames[0] != frame).any()) for frame in frames[1:])


def _sample(name: str) -> Media:
    """A file of tests/data."""
    path = _DATA / name
    return Media(path.read_bytes(), _MEDIA_TYPES[path.suffix], name)


def _cropped(name: str, box: tuple[int, int, int, int]) -> Media:
    with Image.open(_DATA / name) as image:
        return png(image.convert("RGB").crop(box), "part.png")


def _mask() -> Media:
    """A disc in the middle of the photograph."""
    mask = Image.new("L", (512, 512), "black")
    ImageDraw.Draw(mask).ellipse((176, 176, 336, 336), fill="white")
    return png(mask, "mask.png")


@cache
def _film() -> Media:
    """A shot that pans over the photograph."""
    with Image.open(_DATA / "face.jpg") as image:
        whole = image.convert("RGB")
    lefts = range(0, _FILM_FRAMES * _FILM_STEP, _FILM_STEP)
    return encode_frames([np.asarray(whole.crop((left, 0, left + _FILM_SIDE, _FILM_SIDE))) for left in lefts])


def _table() -> Media:
    return Media(b"city,country,inhabitants\nParis,France,2100000\nRome,Italy,2800000\n", "text/csv", "cities.csv")


_PHOTOGRAPH, _SPEECH = partial(_sample, "face.jpg"), partial(_sample, "speech.wav")
"""The photograph shows a woman in an orange space suit in front of a flag and a model of the Space Shuttle; the
recording orders a large pizza."""
_FACE = partial(_cropped, "face.jpg", (160, 40, 288, 168))
_WOMAN = ("woman", "person", "girl", "astronaut", "lady")
_REPORT = (
    "The city council of Ashford voted on Tuesday to build a new library next to the railway station. The building "
    "will cost eleven million pounds and open in two years. The old library was damaged by a flood last winter and "
    "has been closed since. Residents had collected four thousand signatures for a new library. "
)
_PROMPT = "a red apple on a wooden table, photograph"
_SEEDED: Mapping[str, Any] = {"seed": 7}
_FEW_STEPS: Mapping[str, Any] = {"seed": 7, "num_inference_steps": 10}
_GREEDY: Mapping[str, Any] = {"max_new_tokens": 24, "temperature": 0}
_MAPS = ("canny", "depth", "hed", "mlsd", "normal", "openpose", "scribble", "seg")

BY_TASK: Mapping[str, Case] = {
    "text-classification": Case({"text": "What a wonderful film, I loved it."}, contains("text", "positive")),
    "zero-shot-classification": Case(
        {"text": "The striker scored twice in the second half."},
        contains("text", "sport"),
        {"candidate_labels": ["politics", "sport", "cooking"]},
    ),
    "token-classification": Case(
        {"text": "Angela Merkel met engineers of Siemens in Berlin."}, names("entities", "text", "Berlin")
    ),
    "question-answering": Case(
        {"question": "What will the library cost?", "context": _REPORT}, contains("text", "eleven million")
    ),
    "table-question-answering": Case(
        {"question": "Which country is Rome in?", "table": _table}, contains("text", "Italy")
    ),
    "summarization": Case({"text": _REPORT}, contains("text", "library")),
    "translation": Case(
        {"text": "The house is small."}, contains("text", "Haus"), {"source_language": "en", "target_language": "de"}
    ),
    "text2text-generation": Case({"text": "What is the capital of France?"}, contains("text", "Paris")),
    "text-generation": Case({"text": "The capital of France is"}, contains("text", "Paris"), _GREEDY),
    "conversational": Case({"text": "What is the capital of France?"}, contains("text", "Paris"), _GREEDY),
    "fill-mask": Case({"text": "Paris is the capital of [MASK]."}, contains("text", "France")),
    "feature-extraction": Case({"text": "The house is small."}, is_vector("embedding", 128)),
    "sentence-similarity": Case(
        {"text": "A cat sleeps on the sofa.", "sentences": ["Interest rates rose again.", "A cat naps on a couch."]},
        has_best("scores", 1),
    ),
    "image-classification": Case({"image": _PHOTOGRAPH}, is_confident(0.1)),
    "zero-shot-image-classification": Case(
        {"image": _PHOTOGRAPH},
        contains("text", "astronaut"),
        {"candidate_labels": ["a bowl of soup", "an astronaut", "a bicycle"]},
    ),
    "object-detection": Case({"image": _PHOTOGRAPH}, names("objects", "label", "person")),
    "zero-shot-object-detection": Case(
        {"image": _PHOTOGRAPH}, names("objects", "label", "person"), {"candidate_labels": ["bicycle", "person"]}
    ),
    "image-segmentation": Case({"image": _PHOTOGRAPH}, names("segments", "label", "person")),
    "mask-generation": Case({"image": _PHOTOGRAPH}, has_items("masks")),
    "depth-estimation": Case({"image": _PHOTOGRAPH}, is_picture(384)),
    "image-to-text": Case({"image": _PHOTOGRAPH}, contains("text", *_WOMAN)),
    "visual-question-answering": Case(
        {"image": _PHOTOGRAPH, "question": "What colour is the suit?"}, contains("text", "orange")
    ),
    "document-question-answering": Case(
        {"image": partial(_sample, "invoice.png"), "question": "What is the invoice number?"}, contains("text", "0117")
    ),
    "image-feature-extraction": Case({"image": _PHOTOGRAPH}, is_vector("embedding", 128)),
    "keypoint-detection": Case({"image": _PHOTOGRAPH}, has_items("keypoints")),
    "automatic-speech-recognition": Case({"audio": _SPEECH}, contains("text", "pizza")),
    "audio-classification": Case({"audio": _SPEECH}, names("labels", "label", "Speech", "Speech synthesizer")),
    "zero-shot-audio-classification": Case(
        {"audio": _SPEECH},
        contains("text", "speech"),
        {"candidate_labels": ["the sound of rain", "the sound of speech", "the sound of a dog"]},
    ),
    "text-to-speech": Case({"text": "Good morning. The train leaves at nine."}, is_sound(1.0)),
    "text-to-audio": Case({"text": "calm piano music"}, is_sound(2.5), {"duration": 3, **_SEEDED}),
    "audio-to-audio": Case({"audio": _SPEECH}, is_sound(2.0)),
    "voice-activity-detection": Case({"audio": _SPEECH}, has_items("segments")),
    "video-classification": Case({"video": _film}, is_confident(0.05)),
    "video-to-text": Case({"video": _film}, contains("text", *_WOMAN, "man", "flag")),
    "text-to-video": Case({"text": "waves at a beach"}, is_film(8), _FEW_STEPS),
    "image-to-video": Case({"image": _PHOTOGRAPH, "text": "a woman smiles"}, is_film(8), _FEW_STEPS),
    "text-to-image": Case({"text": _PROMPT}, is_picture(512), _SEEDED),
    "image-to-image": Case(
        {"image": _PHOTOGRAPH, "instruction": "make it a watercolour painting"}, is_picture(384), _SEEDED
    ),
    "inpainting": Case({"image": _PHOTOGRAPH, "mask": _mask, "text": "a bookshelf"}, is_picture(384), _SEEDED),
    "image-super-resolution": Case({"image": _FACE}, is_picture(256)),
    **{f"{name}-control": Case({"image": _PHOTOGRAPH}, is_picture(256)) for name in _MAPS},
    **{
        f"{name}-text-to-image": Case({"image": _PHOTOGRAPH, "text": _PROMPT}, is_picture(384), _SEEDED)
        for name in _MAPS
    },
}
"""By task, for all of its models without a case of their own."""

BY_MODEL: Mapping[str, Case] = {
    "papluca/xlm-roberta-base-language-detection": Case({"text": "Das Haus ist klein."}, contains("text", "de")),
    "microsoft/trocr-base-handwritten": Case(
        {"image": partial(_cropped, "invoice.png", (60, 490, 300, 545))}, contains("text", "chair")
    ),
    "facebook/mms-tts-deu": Case({"text": "Guten Morgen. Der Zug fährt um neun."}, is_sound(1.0)),
    "facebook/mms-tts-fra": Case({"text": "Bonjour. Le train part à neuf heures."}, is_sound(1.0)),
    "facebook/mms-tts-spa": Case({"text": "Buenos días. El tren sale a las nueve."}, is_sound(1.0)),
}
"""By model, where the case of the task does not fit."""


def find_case(task: str, model_id: str) -> Case:
    """Returns the case of a card.

    Raises:
        KeyError: neither the model nor the task has one.
    """
    return BY_MODEL.get(model_id) or BY_TASK[task]
