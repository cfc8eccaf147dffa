"""Voice activity detection with models that classify each frame of an audio file."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.audio.features import Window, extract_window, launch_windows, stack_features, sum_seconds
from experts.audio.transcript import NO_SPEECH
from experts.audio.waveforms import decode_samples, is_silent, split_windows
from experts.host.handler import Batching, Call, Handler, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import label_names
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host
from services.common.errors import ModelFailed

if TYPE_CHECKING:
    import torch

_WINDOW_SECONDS = 30.0
_MAX_GAP = 0.3
"""Shorter gaps, in seconds, are part of the speech around them."""
_MIN_SPEECH = 0.1
"""Shorter spans, in seconds, are not speech."""
_SPEECH_LABELS = ("speech", "speaking", "voice", "active")
_MAX_LISTED = 20
_MAX_SAMPLES = 16_000 * 240
"""Samples in one forward pass."""


@dataclass(frozen=True)
class DetectionItem:
    """Recording of one call."""

    windows: list[Window]
    threshold: float


def voice_activity_detection(model_id: str, device: str) -> Handler:
    """Loads a model that classifies frames: as speech or other, or by speaker (diarization)."""
    from transformers import AutoFeatureExtractor, AutoModelForAudioFrameClassification

    checkpoint = Checkpoint.fetch(model_id, device)
    features = checkpoint.processor(AutoFeatureExtractor)
    return VoiceActivityDetector(checkpoint, checkpoint.model(AutoModelForAudioFrameClassification), features)


class VoiceActivityDetector(TorchHandler):
    """Locates speech in recordings."""

    batching = Batching()

    def __init__(self, checkpoint: Checkpoint, model: Any, features: Any) -> None:
        super().__init__(checkpoint, model)
        self._features, self._rate = features, int(features.sampling_rate)
        self._window_samples = int(_WINDOW_SECONDS * self._rate)
        labels = [label.casefold() for label in label_names(model.config)]
        self._speech_index = next((index for index, label in enumerate(labels) if label in _SPEECH_LABELS), None)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> DetectionItem:
        samples = decode_samples(inputs["audio"], self._rate)
        parts = [] if is_silent(samples) else split_windows(samples, self._window_samples)
        return DetectionItem([extract_window(self._features, part) for part in parts], parameters["threshold"])

    def cost(self, item: DetectionItem) -> float:
        """Returns the seconds of its windows; silence costs nothing."""
        return sum_seconds(item.windows, self._rate)

    def compute(self, items: Sequence[DetectionItem], call: Call) -> ReadResults:
        def forward(windows: Sequence[Window]) -> "torch.Tensor":
            with inference_context(self.model_id):
                logits = self.model(**stack_features(windows, self.model)).logits.float()
                return copy_to_host(self._speech_probabilities(logits))

        passes = launch_windows([item.windows for item in items], forward, call, max_samples=_MAX_SAMPLES)

        def read() -> list[tuple[list[list[float]], DetectionItem]]:
            scores: list[list[list[float]]] = passes.read(lambda _, rows: rows.tolist())
            return list(zip(scores, items, strict=False))

        return read

    def finish(self, raw: tuple[list[list[float]], DetectionItem]) -> Outputs:
        scores, item = raw
        if not all(math.isfinite(score) for row in scores for score in row):
            raise ModelFailed("the model's scores are not finite", remedy="try another recording or model")
        frames = [(start, end) for start, end, score in self._frames(scores, item) if score >= item.threshold]
        spans = merge_spans(frames, _MAX_GAP)
        speech = [(round(start, 3), round(end, 3)) for start, end in spans if end - start >= _MIN_SPEECH]
        return {"segments": [{"start": start, "end": end} for start, end in speech], "text": summarize(speech)}

    def _frames(self, scores: list[list[float]], item: DetectionItem) -> Iterator[tuple[float, float, float]]:
        """Yields start, end and score of each frame, in seconds of the recording."""
        for number, (row, window) in enumerate(zip(scores, item.windows, strict=True)):
            offset, step = number * _WINDOW_SECONDS, window.length / self._rate / len(row)
            for index, score in enumerate(row):
                yield offset + index * step, offset + (index + 1) * step, score

    def _speech_probabilities(self, logits: Any) -> Any:
        """Returns the probability of speech per frame: of the speech class, or of at least one of several speakers."""
        if self._speech_index is not None and logits.shape[-1] > 1:
            return logits.softmax(-1)[..., self._speech_index]
        return logits.sigmoid().amax(-1)


def merge_spans(spans: Sequence[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Merges spans, given in order, with less than the gap between them."""
    merged: list[tuple[float, float]] = []
    for start, end in spans:
        if merged and start - merged[-1][1] < gap:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def summarize(spans: Sequence[tuple[float, float]]) -> str:
    """Returns a sentence with the first spans of speech."""
    if not spans:
        return NO_SPEECH
    times = [f"{start:.1f} to {end:.1f} s" for start, end in spans[:_MAX_LISTED]]
    more = f" and {len(spans) - _MAX_LISTED} more times" if len(spans) > _MAX_LISTED else ""
    return f"Speech from {', '.join(times)}{more}."
