"""Voice activity detection with models that classify each frame of an audio file."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.audio.waveforms import heard, is_silent, windows
from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import label_names
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import run_in_passes
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import ModelFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

NO_SPEECH = "Nobody speaks."

_WINDOW = 30.0
_BREATH = 0.3
"""Seconds: a shorter gap is part of speaking."""
_BLINK = 0.1
"""Seconds: what is shorter is no speech."""
_SPEECH = ("speech", "speaking", "voice", "active")
_SHOWN = 20
_MOST = 16_000 * 240
"""Samples in one forward pass."""


@dataclass(frozen=True)
class Recording:
    """One caller's."""

    windows: list["Samples"]
    seconds: float
    threshold: float


def voice_activity_detection(model_id: str, device: str) -> Handler:
    """A model with a head for frames: of speech and the rest, or of each speaker (diarization)."""
    from transformers import AutoFeatureExtractor, AutoModelForAudioFrameClassification

    checkpoint = Checkpoint.fetch(model_id, device)
    features = checkpoint.processor(AutoFeatureExtractor)
    return Activity(checkpoint, checkpoint.model(AutoModelForAudioFrameClassification), features)


class Activity(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, features: Any) -> None:
        super().__init__(checkpoint, model)
        self._features, self._rate = features, int(features.sampling_rate)
        self._size = int(_WINDOW * self._rate)
        labels = [label.casefold() for label in label_names(model.config)]
        self._speech = next((place for place, label in enumerate(labels) if label in _SPEECH), None)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Recording:
        samples = heard(inputs["audio"], self._rate)
        parts = [] if is_silent(samples) else windows(samples, self._size)
        return Recording(parts, len(samples) / self._rate, parameters["threshold"])

    def cost(self, item: Recording) -> float:
        return item.seconds

    def run(self, items: Sequence[Recording], call: Call) -> list[tuple[list[list[float]], Recording]]:
        def compute(parts: Sequence["Samples"]) -> list[list[float]]:
            batch = self._features(list(parts), sampling_rate=self._rate, return_tensors="pt")
            with inference_context(self.model_id):
                logits = self.model(**move_to_device(batch, self.model)).logits.float()
            rows: list[list[float]] = self._likely(logits).tolist()
            return rows

        # Not all models mask padding: only parts of one length go together.
        found = run_in_passes([item.windows for item in items], len, compute, call, max_tokens=_MOST, kind=len)
        return list(zip(found, items, strict=False))

    def finish(self, raw: tuple[list[list[float]], Recording]) -> Outputs:
        scores, item = raw
        if not all(math.isfinite(score) for row in scores for score in row):
            raise ModelFailed("the model gave scores that are not finite", remedy="try another recording or model")
        loud = [(start, end) for start, end, score in self._frames(scores, item) if score >= item.threshold]
        found = [(round(start, 3), round(end, 3)) for start, end in joined(loud, _BREATH) if end - start >= _BLINK]
        return {"segments": [{"start": start, "end": end} for start, end in found], "text": described(found)}

    def _frames(self, scores: list[list[float]], item: Recording) -> Iterator[tuple[float, float, float]]:
        """When each begins and ends, and its score."""
        for number, (row, part) in enumerate(zip(scores, item.windows, strict=True)):
            offset, step = number * _WINDOW, len(part) / self._rate / len(row)
            for place, score in enumerate(row):
                yield offset + place * step, offset + (place + 1) * step, score

    def _likely(self, logits: Any) -> Any:
        """Returns the probability of speech per frame: of the speech class, or of at least one of several speakers."""
        if self._speech is not None and logits.shape[-1] > 1:
            return logits.softmax(-1)[..., self._speech]
        return logits.sigmoid().amax(-1)


def joined(spans: Sequence[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Spans in order, as one where less than the gap lies between them."""
    found: list[tuple[float, float]] = []
    for start, end in spans:
        if found and start - found[-1][1] < gap:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def described(spans: Sequence[tuple[float, float]]) -> str:
    """For a person, the first of them."""
    if not spans:
        return NO_SPEECH
    times = [f"{start:.1f} to {end:.1f} s" for start, end in spans[:_SHOWN]]
    more = f" and {len(spans) - _SHOWN} more times" if len(spans) > _SHOWN else ""
    return f"Somebody speaks from {', '.join(times)}{more}."
