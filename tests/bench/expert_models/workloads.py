"""Models that the benchmark serves with the modalities' own loaders, and the inputs it sends them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Size = Literal["tiny", "base", "large"]
"""Tiny: little more than the cost of a call; base: a CPU's models; large: a GPU's."""


@dataclass(frozen=True)
class Workload:
    """A task of an expert, with the card that serves it and files as inputs.

    Attributes:
        modality: `python -m experts.<modality>` serves it.
        task: of the request.
        model: id of the card; its files are replaced by a checkpoint with random weights.
        port: input port of the task.
        media_type: of the files; a text is sent in the request itself.
        about: name of the real sizes and of the inputs.
    """

    modality: str
    task: str
    model: str
    port: str
    media_type: str
    about: str


TEXT = Workload(
    "text",
    "text-classification",
    "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
    "text",
    "text/plain",
    "BERT, 8 to 64 words",
)
VISION = Workload(
    "vision",
    "image-classification",
    "google/vit-base-patch16-224",
    "image",
    "image/jpeg",
    "ViT, 224 pixels, from JPEG files of 1024 x 768",
)
AUDIO = Workload(
    "audio",
    "automatic-speech-recognition",
    "facebook/wav2vec2-base-960h",
    "audio",
    "audio/wav",
    "wav2vec 2.0, from WAV files of 2 to 4 s",
)
WORKLOADS: Sequence[Workload] = (TEXT, VISION, AUDIO)
BY_MODALITY: Mapping[str, Workload] = {each.modality: each for each in WORKLOADS}
