"""Speech recognition frame by frame (CTC): wav2vec 2.0, HuBERT, WavLM, MMS and others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experts.audio.transcript import Said, written
from experts.audio.waveforms import heard, is_silent
from experts.host.handler import Call, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.torch_host.padding import run_in_passes
from experts.torch_host.torch_handler import TorchHandler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

_CORE, _MARGIN = 20.0, 3.0
"""Seconds of a window that count, and those on either side that only help to understand them."""
_PAUSE = 0.5
_MOST = 16_000 * 240
"""Samples in one forward pass."""

Frames = list[tuple[int, float]]
"""The likeliest token of each frame, and its probability."""


@dataclass(frozen=True)
class Window:
    """Some of a recording."""

    samples: "Samples"
    before: float
    core: float
    """Which parts of its length come before what counts, and are what counts."""


@dataclass(frozen=True)
class Recording:
    """One caller's."""

    windows: list[Window]
    seconds: float


class Ctc(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._features = processor.tokenizer, processor.feature_extractor
        self._rate = int(self._features.sampling_rate)
        self._blank = model.config.pad_token_id
        delimiter = getattr(self._tokenizer, "word_delimiter_token", None)
        self._delimiter = self._tokenizer.convert_tokens_to_ids(delimiter) if delimiter else None

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Recording:  # noqa: ARG002  # each has one language
        samples = heard(inputs["audio"], self._rate)
        return Recording([] if is_silent(samples) else self._windows(samples), len(samples) / self._rate)

    def cost(self, item: Recording) -> float:
        return item.seconds

    def run(self, items: Sequence[Recording], call: Call) -> list[tuple[list[Frames], Recording]]:
        def compute(windows: Sequence[Window]) -> list[Frames]:
            batch = self._features([w.samples for w in windows], sampling_rate=self._rate, return_tensors="pt")
            with inference_context(self.model_id):
                logits = self.model(**move_to_device(batch, self.model)).logits
                scores, tokens = require_finite(logits.float(), self.model_id).softmax(-1).max(-1)
            rows = zip(windows, tokens.tolist(), scores.tolist(), strict=True)
            return [_counting(window, list(zip(row, score, strict=True))) for window, row, score in rows]

        def length(window: Window) -> int:
            return len(window.samples)

        # Not all models mask padding: only windows of one length go together.
        found = run_in_passes([item.windows for item in items], length, compute, call, max_tokens=_MOST, kind=length)
        return list(zip(found, items, strict=False))

    def finish(self, raw: tuple[list[Frames], Recording]) -> Outputs:
        windows, item = raw
        frames = [frame for window in windows for frame in window]
        return written(list(self._said(frames, item.seconds / max(1, len(frames)))), {})

    def _windows(self, samples: "Samples") -> list[Window]:
        core, margin = int(_CORE * self._rate), int(_MARGIN * self._rate)
        found = []
        for start in range(0, len(samples), core):
            end = min(start + core, len(samples))
            if len(samples) - end < margin:
                end = len(samples)  # what is left is too short to be understood alone
            first, last = max(0, start - margin), min(len(samples), end + margin)
            found.append(Window(samples[first:last], (start - first) / (last - first), (end - start) / (last - first)))
            if end == len(samples):
                break
        return found

    def _said(self, frames: Frames, seconds: float) -> Iterator[Said]:
        for start, end in self._stretches(frames, _PAUSE / seconds):
            stretch = frames[start:end]
            text = self._tokenizer.decode([token for token, _ in stretch], skip_special_tokens=True).strip()
            sounds = [score for token, score in stretch if self._is_sound(token)]
            if text:
                yield Said(text, start * seconds, end * seconds, sum(sounds) / len(sounds))

    def _stretches(self, frames: Frames, pause: float) -> Iterator[tuple[int, int]]:
        """From the first sound to the last one before a pause between words."""
        sounds = [place for place, (token, _) in enumerate(frames) if self._is_sound(token)]
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


def _counting(window: Window, frames: Frames) -> Frames:
    """Without those of the margins."""
    first = round(window.before * len(frames))
    return frames[first : round((window.before + window.core) * len(frames))]
