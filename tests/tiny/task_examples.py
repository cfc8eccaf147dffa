"""Inputs and parameters for the tasks of the torch experts, and comparison of outputs."""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experts.host import load_context
from experts.host.handler import Handler, Inputs, Media, Parameters
from experts.host.load_context import PIPELINE_DEFAULTS, ComputeOptions, LoadContext, PipelineOptions
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_AUDIO, MODALITY_IMAGE, MODALITY_TEXT, MODALITY_VIDEO
from protos.hugginggpt.v1.task_pb2 import Port
from tests.tiny import TinyModels, load_models
from tests.tiny.audio_files import HIGH, LOW, make_tones, read_wav, to_wav
from tests.tiny.image_files import COLOURS, LEFT, RIGHT, solid_image, square_image, to_media
from tests.tiny.text_examples import CONTEXT, TABLE
from tests.tiny.video_files import BLUE, GREEN, RED, decode_frames, encode_frames, solid_frame

MODALITIES = ("text", "vision", "audio", "video", "diffusion")
_OF_PEOPLE, _PERSON, _DETECTOR = ("keypoint-detection", "openpose-control"), "red", "PekingU/rtdetr_r18vd_coco_o365"
COUNT = 3
"""Examples of a task. The first two pictures have one size."""

_TEXTS = ("a good film", "the soup is good .", "i hate the dull story . the people of the city were sad .")
_QUESTIONS = ("where does anna live ?", "where does schmidt live ?", "how many people live in paris ?")
_MASKED = ("soup is [MASK]", "berlin is the [MASK] of germany", "the soup of [MASK] is good .")
_LABELS = {"candidate_labels": ["red", "blue"]}
_STEPS = {"num_inference_steps": 2, "seed": 7}
_PARAMETERS: Mapping[str, Parameters] = {
    "zero-shot-classification": {"candidate_labels": ["sports", "cooking"]},
    "zero-shot-image-classification": _LABELS,
    "zero-shot-object-detection": {**_LABELS, "threshold": 0.1},
    "zero-shot-audio-classification": {"candidate_labels": ["dog", "car horn"]},
    "text-generation": {"max_new_tokens": 6, "temperature": 0},
    "conversational": {"max_new_tokens": 6, "temperature": 0},
    "text-to-audio": {"duration": 0.5, "seed": 7},
    "text-to-video": {**_STEPS, "num_frames": 5},
    "image-to-video": {**_STEPS, "num_frames": 2},
    "text-to-image": _STEPS,
    "image-to-image": {**_STEPS, "strength": 1.0},
    "inpainting": _STEPS,
}
_SMALL = {"width": 64, "height": 64}
_MODEL_PARAMETERS: Mapping[tuple[str, str], Parameters] = {
    ("tiny/m2m100", "translation"): {"source_language": "en", "target_language": "de"},
    ("tiny/editor", "image-to-image"): _STEPS,
    ("tiny/flux", "image-to-image"): _STEPS,
    ("tiny/flux", "text-to-image"): {**_STEPS, **_SMALL},
    ("tiny/z-image", "text-to-image"): {**_STEPS, **_SMALL},
    ("tiny/sdxl", "text-to-image"): {**_STEPS, **_SMALL},
}
"""Of models that need others than their task, or whose own size is large."""
_PIPELINES = {"tiny/wan": PipelineOptions({**_SMALL, "num_frames": 5})}
_REFUSED = {
    ("tiny/florence", "visual-question-answering"),
    ("tiny/florence", "document-question-answering"),
    ("tiny/story", "conversational"),
}
"""Models that do not load for a task."""


@dataclass(frozen=True)
class Case:
    """One task of one tiny model."""

    modality: str
    task: str
    model: str

    def load(self, models: TinyModels, dtype: str = "") -> Handler:
        models.build(self.modality, self.model)
        if self.task in _OF_PEOPLE:
            models.build("vision", _DETECTOR)
        loader = import_module(f"experts.{self.modality}.tasks").TASKS[self.task]
        context = LoadContext(compute=ComputeOptions(dtype), pipeline=_PIPELINES.get(self.model, PIPELINE_DEFAULTS))
        with load_context.use(context):
            handler: Handler = loader(self.model, "cpu")
        return handler

    def parameters(self) -> Parameters:
        if (self.model, self.task) in _MODEL_PARAMETERS:
            return default_parameters(self.task, **_MODEL_PARAMETERS[self.model, self.task])
        stated = _PARAMETERS.get(self.task, _STEPS if self.task.endswith("-text-to-image") else {})
        return default_parameters(self.task, **stated)

    def inputs(self) -> list[Inputs]:
        ports = standard_tasks()[self.task].inputs
        return [
            {port.name: _value(self.task, port, index) for port in ports if port.required or port.name == "instruction"}
            for index in range(COUNT)
        ]


class RunningCall:
    """A call that nobody cancels."""

    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None:
        """Ignores progress."""


def default_parameters(task: str, **stated: Any) -> Parameters:
    """Returns the parameters that a host passes: those stated, and the defaults of the others."""
    schemas = {each.name: json.loads(each.json_schema) for each in standard_tasks()[task].parameters}
    return {name: schema["default"] for name, schema in schemas.items() if "default" in schema} | stated


def list_cases(*modalities: str) -> Iterator[Case]:
    for modality in modalities or MODALITIES:
        for model_id, model in load_models(modality).items():
            yield from (Case(modality, task, model_id) for task in model.tasks if (model_id, task) not in _REFUSED)


def _value(task: str, port: Port, index: int) -> Any:
    if port.many:
        return list(_TEXTS[: index + 1])
    if port.modality == MODALITY_TEXT:
        return _text(task, port.name, index)
    if port.modality == MODALITY_IMAGE:
        return _image(task, port.name, index)
    if port.modality == MODALITY_AUDIO:
        return to_wav(make_tones((LOW, 0.5 + 0.5 * index), (0, 0.3), (HIGH, 0.7)))
    if port.modality == MODALITY_VIDEO:
        return encode_frames([solid_frame((RED, GREEN, BLUE)[index])] * (4 + 2 * index))
    return Media(TABLE.encode(), "text/csv", "table.csv")


def _image(task: str, port: str, index: int) -> Media:
    size = (64, 64) if index < COUNT - 1 else (96, 64)
    if task == "image-super-resolution":
        return to_media(solid_image(COLOURS[index], (size[0] // 4, 16)))
    if port == "mask" or task in _OF_PEOPLE:
        return to_media(square_image(_PERSON, LEFT, size))
    return to_media(square_image(COLOURS[index], (LEFT, RIGHT, LEFT)[index], size))


def _text(task: str, port: str, index: int) -> str:
    if port == "context":
        return " ".join([CONTEXT] * (index + 1))
    if port == "question":
        return _QUESTIONS[index]
    return _MASKED[index] if task == "fill-mask" else _TEXTS[index]


@dataclass(frozen=True)
class Tolerance:
    """How much outputs may differ."""

    numbers: float = 0.0
    """Absolute difference of scores and numbers of embeddings."""
    pixels: float = 0.0
    """Of boxes and points."""
    levels: float = 0.0
    """Mean difference of pictures, in levels of 255."""
    frames: float = 0.0
    """The same of videos, which are encoded with losses."""
    samples: float = 0.0
    """Mean difference of sounds, whose full scale is 1."""


def assert_close(found: Any, expected: Any, tolerance: Tolerance, path: str = "") -> None:
    """Compares outputs of a task."""
    if isinstance(expected, Media):
        _assert_close_media(found, expected, tolerance, path)
    elif isinstance(expected, Mapping):
        assert found.keys() == expected.keys(), path
        for name, value in expected.items():
            assert_close(found[name], value, tolerance, f"{path}.{name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), path
        for index, value in enumerate(expected):
            assert_close(found[index], value, tolerance, f"{path}[{index}]")
    elif isinstance(expected, float):
        is_position = ".box" in path or path.endswith((".x", ".y"))
        assert found == pytest.approx(expected, rel=0, abs=tolerance.pixels if is_position else tolerance.numbers), path
    else:
        assert found == expected, path


def _assert_close_media(found: Media, expected: Media, tolerance: Tolerance, path: str) -> None:
    assert found.media_type == expected.media_type, path
    kind = expected.media_type.partition("/")[0]
    limit = {"audio": tolerance.samples, "video": tolerance.frames}.get(kind, tolerance.levels)
    one, other = (_decode(media, kind) for media in (found, expected))
    assert one.shape == other.shape, path
    assert float(np.abs(one - other).mean()) <= limit, path


def _decode(media: Media, kind: str) -> Any:
    if kind == "audio":
        return read_wav(media)[0]
    if kind == "video":
        return np.asarray(decode_frames(media)[0], dtype=np.float32)
    return np.asarray(Image.open(io.BytesIO(media.content)).convert("RGB"), dtype=np.float32)
