"""Speech recognition with CTC models: wav2vec 2.0, HuBERT, WavLM, MMS and others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experts.audio.features import Window, extract_window, launch_windows, stack_features, sum_seconds
from experts.audio.transcript import SpeechSegment, build_outputs
from experts.audio.waveforms import decode_samples, is_silent
from experts.host.handler import Batching, Call, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.non_finite import require_finite
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

_CORE_SECONDS, _MARGIN_SECONDS = 20.0, 3.0
"""Length of a window's core, whose frames are used, and of the context on either side of it."""
_PAUSE_SECONDS = 0.5
_MAX_SAMPLES = 16_000 * 240
"""Samples in one forward pass."""

Frames = list[tuple[int, float]]
"""Most likely token of each frame, with its probability."""


@dataclass(frozen=True)
class CoreWindow(Window):
    """Window with a core whose frames are used, and with context on either side of it."""

    before: float
    """Fraction of the window before the core."""
    core: float
    """Fraction of the window that is the core."""


@dataclass(frozen=True)
class TranscriptionItem:
    """Recording of one call."""

    windows: list[CoreWindow]
    seconds: float


class CtcTranscriber(TorchHandler):
    """Recognizes speech with one forward pass per window."""

    batching = Batching()

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._features = processor.tokenizer, processor.feature_extractor
        self._rate = int(self._features.sampling_rate)
        self._blank = model.config.pad_token_id
        delimiter = getattr(self._tokenizer, "word_delimiter_token", None)
        self._delimiter = self._tokenizer.convert_tokens_to_ids(delimiter) if delimiter else None

    def prepare(self, inputs: Inputs, parameters: Parameters) -> TranscriptionItem:  # noqa: ARG002  # each model has one language
        samples = decode_samples(inputs["audio"], self._rate)
        return TranscriptionItem([] if is_silent(samples) else self._windows(samples), len(samples) / self._rate)

    def cost(self, item: TranscriptionItem) -> float:
        """Returns the seconds of its windows, which overlap; silence costs nothing."""
        return sum_seconds(item.windows, self._rate)

    def compute(self, items: Sequence[TranscriptionItem], call: Call) -> ReadResults:
        import torch

        def forward(windows: Sequence[CoreWindow]) -> "torch.Tensor":
            """Returns the probability and the number of the most likely token of each frame."""
            with inference_context(self.model_id):
                logits = self.model(**stack_features(windows, self.model)).logits
                scores, tokens = logits.float().softmax(-1).max(-1)
                return copy_to_host(torch.stack((scores, tokens)))

        passes = launch_windows([item.windows for item in items], forward, call, max_samples=_MAX_SAMPLES)

        def read() -> list[tuple[list[Frames], TranscriptionItem]]:
            return list(zip(passes.read(self._read_frames), items, strict=False))

        return read

    def finish(self, raw: tuple[list[Frames], TranscriptionItem]) -> Outputs:
        windows, item = raw
        frames = [frame for window in windows for frame in window]
        return build_outputs(list(self._segments(frames, item.seconds / max(1, len(frames)))), {})

    def _read_frames(self, windows: Sequence[CoreWindow], output: "torch.Tensor") -> list[Frames]:
        """Returns the frames of each window's core; logits that are not finite have no finite probability."""
        scores, tokens = require_finite(output, self.model_id)
        rows = zip(windows, tokens.int().tolist(), scores.tolist(), strict=True)
        return [_core_frames(window, list(zip(row, score, strict=True))) for window, row, score in rows]

    def _windows(self, samples: "Samples") -> list[CoreWindow]:
        core, margin = int(_CORE_SECONDS * self._rate), int(_MARGIN_SECONDS * self._rate)
        windows = []
        for start in range(0, len(samples), core):
            end = min(start + core, len(samples))
            if len(samples) - end < margin:
                end = len(samples)  # the rest is too short to be recognized alone
            window_start, window_end = max(0, start - margin), min(len(samples), end + margin)
            length = window_end - window_start
            before, core_share = (start - window_start) / length, (end - start) / length
            window = extract_window(self._features, samples[window_start:window_end])
            windows.append(CoreWindow(window.features, window.length, before, core_share))
            if end == len(samples):
                break
        return windows

    def _segments(self, frames: Frames, seconds: float) -> Iterator[SpeechSegment]:
        for start, end in self._speech_spans(frames, _PAUSE_SECONDS / seconds):
            span = frames[start:end]
            text = self._tokenizer.decode([token for token, _ in span], skip_special_tokens=True).strip()
            sounds = [score for token, score in span if self._is_sound(token)]
            if text:
                yield SpeechSegment(text, start * seconds, end * seconds, sum(sounds) / len(sounds))

    def _speech_spans(self, frames: Frames, pause: float) -> Iterator[tuple[int, int]]:
        """Yields frame ranges of speech between pauses; a pause counts only between words."""
        sounds = [index for index, (token, _) in enumerate(frames) if self._is_sound(token)]
        if not sounds:
            return
        start = sounds[0]
        for before, after in pairwise(sounds):
            gap = {token for token, _ in frames[before + 1 : after]}
            if after - before > pause and (self._delimiter is None or self._delimiter in gap):
                yield start, before + 1
                start = after
        yield start, sounds[-1] + 1

    def _is_sound(self, token: int) -> bool:
        return token not in (self._blank, self._delimiter)


def _core_frames(window: CoreWindow, frames: Frames) -> Frames:
    """Returns the frames of a window's core."""
    window_start = round(window.before * len(frames))
    return frames[window_start : round((window.before + window.core) * len(frames))]
