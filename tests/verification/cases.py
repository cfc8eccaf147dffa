"""Golden cases of the models: an input, and a property that the outputs of a model with its real weights have."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image, ImageDraw

from experts.host.handler import Media, Outputs
from experts.host.media import png, wav
from tests.tiny.video_files import decode_frames, encode_frames

_DATA = Path(__file__).parents[1] / "data"
_MEDIA_TYPES = {".jpg": "image/jpeg", ".png": "image/png", ".wav": "audio/wav"}
_FILM_FRAMES, _FILM_STEP, _FILM_SIDE = 24, 4, 384

Point = tuple[int, int]
"""Column and row of a pixel."""
Box = tuple[int, int, int, int]
"""Left, upper, right and lower edge."""

_FACE_POINTS = (("nose",), ("l_eye", "left_eye", "left eye"), ("r_eye", "right_eye", "right eye"))
"""Names of points in the models' configurations."""

MIN_MARGIN = 0.05
"""Difference of cosines by which similar inputs are closer than others."""
MIN_OVERLAP = 0.8
"""Intersection over union of a mask's box with that of the shape; areas differ by at most the rest of 1."""
MAX_DISTANCE = 0.5
"""Seconds that a span of speech may begin too early or end too late."""
MIN_CONTRAST = 5.0
"""Standard deviation of the pixels, of 255, below which a picture counts as blank."""
MIN_LOUDNESS = 0.001
"""Root mean square of the samples, of 1, below which a recording counts as silent."""


@dataclass(frozen=True)
class Property:
    """A property of the outputs of a call, or of several; it can be sent to another process."""

    description: str
    holds: Callable[..., bool]
    """Called with the outputs of each call."""


@dataclass(frozen=True)
class Case:
    """One call, or several to compare, and the expected property of the outputs."""

    inputs: Mapping[str, Any]
    """As tests.tiny.ExpertClient takes them; a file is a function that returns it."""
    expected: Property
    parameters: Mapping[str, Any] = field(default_factory=dict)
    compared: Sequence[Mapping[str, Any]] = ()
    """Inputs of further calls."""

    def read_inputs(self) -> list[dict[str, Any]]:
        """Returns the inputs of each call."""
        return [
            {name: value() if callable(value) else value for name, value in inputs.items()}
            for inputs in (self.inputs, *self.compared)
        ]


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


def is_closer(port: str) -> Property:
    """The vectors of three calls have length 1, and those of the first two are closer than those of first and third."""
    description = f"each {port} has length 1, and the first is closer to the second than to the third by {MIN_MARGIN:g}"
    return Property(description, partial(_is_closer, port))


def outlines(box: Box, area: float) -> Property:
    """A mask has the box and the area of a shape."""
    return Property(f"a mask has the box {box} and an area of {area:.0f} pixels", partial(_outlines, box, area))


def covers(label: str, point: Point) -> Property:
    """The segment of a label, in any case, has the pixel at a point."""
    return Property(f"the segment {label!r} covers the pixel at {point}", partial(_covers, label, point))


def is_pose(person: Box, face: Box) -> Property:
    """One pose is that of a person who faces the camera.

    Args:
        person: all points are in this box.
        face: nose and eyes are in this box; the person's left eye is on the right, and the nose below the eyes.
    """
    description = f"a pose has its points in {person}, and nose and eyes in {face}, each where a face has it"
    return Property(description, partial(_is_pose, person, face))


def has_best(port: str, position: int) -> Property:
    return Property(f"the highest of {port} is number {position + 1}", partial(_has_best, port, position))


def has_speech(start: float, end: float) -> Property:
    """The segments, in seconds, have half of a span or more, and nothing farther than MAX_DISTANCE from it."""
    description = f"segments are between {start:g} and {end:g} s, and are half of it or more"
    return Property(description, partial(_has_speech, start, end))


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


def _is_closer(port: str, *outputs: Outputs) -> bool:
    first, similar, other = (np.asarray(each[port], dtype=float) for each in outputs)
    have_length_1 = np.allclose([np.linalg.norm(vector) for vector in (first, similar, other)], 1.0, atol=0.001)
    return bool(have_length_1) and float(first @ similar - first @ other) >= MIN_MARGIN


def _outlines(box: Box, area: float, outputs: Outputs) -> bool:
    return any(
        _overlap(box, [mask["box"][side] for side in ("xmin", "ymin", "xmax", "ymax")]) >= MIN_OVERLAP
        and abs(mask["area"] - area) <= (1 - MIN_OVERLAP) * area
        for mask in outputs["masks"]
    )


def _overlap(box: Sequence[float], other: Sequence[float]) -> float:
    """Returns the intersection of two boxes over their union."""
    low, high = np.maximum(box[:2], other[:2]), np.minimum(box[2:], other[2:])
    intersection = float(np.prod(np.clip(np.subtract(high, low), 0, None)))
    areas = sum(float(np.prod(np.subtract(each[2:], each[:2]))) for each in (box, other))
    return intersection / (areas - intersection)


def _covers(label: str, point: Point, outputs: Outputs) -> bool:
    with Image.open(io.BytesIO(outputs["mask"].content)) as mask:
        grey = mask.convert("L").getpixel(point)
    segments = outputs["segments"]
    return any(each["grey"] == grey for each in segments if each["label"].strip().casefold() == label.casefold())


def _is_pose(person: Box, face: Box, outputs: Outputs) -> bool:
    return any(_has_face(pose["points"], person, face) for pose in outputs["keypoints"])


def _has_face(points: Sequence[Mapping[str, Any]], person: Box, face: Box) -> bool:
    by_name = {point["name"].casefold(): (point["x"], point["y"]) for point in points}
    parts = [by_name[name] for names in _FACE_POINTS for name in names if name in by_name]
    if len(parts) != len(_FACE_POINTS) or not all(_is_inside(point, person) for point in by_name.values()):
        return False
    nose, left, right = parts
    are_in_order = left[0] > right[0] and nose[1] > max(left[1], right[1])
    return are_in_order and all(_is_inside(point, face) for point in parts)


def _is_inside(point: Sequence[float], box: Box) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _has_best(port: str, position: int, outputs: Outputs) -> bool:
    return int(np.argmax(outputs[port])) == position


def _has_speech(start: float, end: float, outputs: Outputs) -> bool:
    spans = [(segment["start"], segment["end"]) for segment in outputs["segments"]]
    spoken = sum(last - first for first, last in spans)
    return spoken >= (end - start) / 2 and all(
        start - MAX_DISTANCE <= first and last <= end + MAX_DISTANCE for first, last in spans
    )


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


def _cropped(name: str, box: Box) -> Media:
    with Image.open(_DATA / name) as image:
        return png(image.convert("RGB").crop(box), "part.png")


def _drawn_square() -> Media:
    picture = Image.new("RGB", (640, 480), "white")
    ImageDraw.Draw(picture).rectangle(_within(_SQUARE), fill="firebrick")
    return png(picture, "square.png")


def _within(box: Box) -> Box:
    """Returns the edges as Pillow draws them, which includes the last ones."""
    left, top, right, bottom = box
    return left, top, right - 1, bottom - 1


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


def _pauses_around_speech() -> Media:
    """The recording with a pause before and after it."""
    samples, rate = soundfile.read(_DATA / "speech.wav", dtype="float32")
    return wav(np.pad(samples, round(_PAUSE_SECONDS * rate)), rate, "pauses.wav")


def _table() -> Media:
    return Media(b"city,country,inhabitants\nParis,France,2100000\nRome,Italy,2800000\n", "text/csv", "cities.csv")


_PAUSE_SECONDS, _SPEECH_SECONDS = 2.0, 4.7
_PHOTOGRAPH, _SPEECH = partial(_sample, "face.jpg"), partial(_sample, "speech.wav")
"""The photograph shows a woman in an orange space suit in front of a flag and a model of the Space Shuttle; the
recording orders a large pizza."""
_FACE = partial(_cropped, "face.jpg", (160, 40, 288, 168))
_PERSON_BOX, _FACE_BOX, _CHEST = (0, 0, 420, 512), (175, 70, 280, 160), (250, 330)
"""Of the photograph, with room for joints that the picture cuts off."""
_SQUARE = (200, 120, 440, 360)
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
    "feature-extraction": Case(
        {"text": "A cat sleeps on the sofa."},
        is_closer("embedding"),
        compared=({"text": "A kitten naps on a couch."}, {"text": "The central bank raised interest rates again."}),
    ),
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
    "image-segmentation": Case({"image": _PHOTOGRAPH}, covers("person", _CHEST)),
    "mask-generation": Case({"image": _drawn_square}, outlines(_SQUARE, 240 * 240)),
    "depth-estimation": Case({"image": _PHOTOGRAPH}, is_picture(384)),
    "image-to-text": Case({"image": _PHOTOGRAPH}, contains("text", *_WOMAN)),
    "visual-question-answering": Case(
        {"image": _PHOTOGRAPH, "question": "What colour is the suit?"}, contains("text", "orange")
    ),
    "document-question-answering": Case(
        {"image": partial(_sample, "invoice.png"), "question": "What is the invoice number?"}, contains("text", "0117")
    ),
    "image-feature-extraction": Case(
        {"image": _PHOTOGRAPH},
        is_closer("embedding"),
        compared=(
            {"image": partial(_cropped, "face.jpg", (16, 0, 496, 480))},
            {"image": partial(_sample, "invoice.png")},
        ),
    ),
    "keypoint-detection": Case({"image": _PHOTOGRAPH}, is_pose(_PERSON_BOX, _FACE_BOX)),
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
    "voice-activity-detection": Case(
        {"audio": _pauses_around_speech}, has_speech(_PAUSE_SECONDS, _PAUSE_SECONDS + _SPEECH_SECONDS)
    ),
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
    "ibm-granite/granite-docling-258M": Case(
        {"image": partial(_sample, "invoice.png")}, contains("text", "INV-2024-0117")
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
