"""Speech recognition by generating text with timestamps: Whisper and models of its architecture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experts.audio.languages import resolve_language
from experts.audio.timestamps import SpecialTokens, split_segments
from experts.audio.transcript import SpeechSegment, build_outputs
from experts.audio.waveforms import decode_samples, is_silent
from experts.audio.whisper_decoding import DecodedWindow, WindowDecoder
from experts.host.handler import Batching, Call, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]


@dataclass(frozen=True)
class TranscriptionItem:
    """Recording of one call."""

    samples: "Samples"
    language: str
    """Code of the model's vocabulary; empty until it is detected."""
    start: int
    """First sample of the first window with sound; the number of samples if there is none."""
    features: Any
    """Features of that window, a batch of one; None if there is none."""


@dataclass
class Transcription:
    """Progress of one item."""

    item: TranscriptionItem
    language: str
    position: int
    segments: list[SpeechSegment] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.position >= len(self.item.samples)


class WhisperTranscriber(TorchHandler):
    """Recognizes speech by generating text window by window."""

    batching = Batching()

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._features = processor.tokenizer, processor.feature_extractor
        self._rate = int(self._features.sampling_rate)
        self._window_samples = int(self._features.n_samples)
        generation_config = model.generation_config
        specials = frozenset(self._tokenizer.all_special_ids)
        self._special_tokens = SpecialTokens(
            generation_config.no_timestamps_token_id + 1, self._tokenizer.eos_token_id, specials
        )
        self._languages: dict[str, int] = getattr(generation_config, "lang_to_id", None) or {}
        self.decoder = WindowDecoder(model, self._tokenizer, self._languages)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> TranscriptionItem:
        supported = [name.strip("<|>") for name in self._languages]
        language = resolve_language(parameters.get("language", ""), supported, self.model_id)
        samples = decode_samples(inputs["audio"], self._rate)
        start = self._skip_silence(samples, 0)
        return TranscriptionItem(
            samples, language, start, self._extract(samples, start) if start < len(samples) else None
        )

    def cost(self, item: TranscriptionItem) -> float:
        """Returns the seconds of its windows, each padded to 30 s; leading silence costs nothing."""
        windows = math.ceil((len(item.samples) - item.start) / self._window_samples)
        return windows * self._window_samples / self._rate

    def run(self, items: Sequence[TranscriptionItem], call: Call) -> list[Transcription]:
        """Runs one window of each item at a time: where the next window begins depends on the previous result."""
        transcriptions = [Transcription(item, item.language, item.start) for item in items]
        total = sum(len(item.samples) for item in items)
        while unfinished := [transcription for transcription in transcriptions if not transcription.is_done]:
            if call.cancelled:
                return []
            self._advance(unfinished)
            done = sum(min(each.position, len(each.item.samples)) for each in transcriptions)
            call.progress(min(1.0, done / total))
        return transcriptions

    def finish(self, raw: Transcription) -> Outputs:
        return build_outputs(raw.segments, {"language": raw.language} if raw.language else {})

    def _skip_silence(self, samples: "Samples", position: int) -> int:
        """Returns the position after silent windows, for which the model would invent text."""
        while position < len(samples) and is_silent(samples[position : position + self._window_samples]):
            position += self._window_samples
        return min(position, len(samples))

    def _extract(self, samples: "Samples", position: int, device: str = "cpu") -> Any:
        """Returns the features of the window at a position, computed on the device."""
        part = samples[position : position + self._window_samples]
        return self._features([part], sampling_rate=self._rate, return_tensors="pt", device=device)["input_features"]

    def _advance(self, transcriptions: Sequence[Transcription]) -> None:
        features = self._stack_features(transcriptions)
        with inference_context(self.model_id):
            encoded = self.model.get_encoder()(features).last_hidden_state
            detected, no_speech = self.decoder.classify(encoded)
            for transcription, language in zip(transcriptions, detected, strict=True):
                transcription.language = transcription.language or language
            languages = [transcription.language for transcription in transcriptions]
            windows = self.decoder.decode(encoded, languages, no_speech)
        for transcription, window in zip(transcriptions, windows, strict=True):
            self._add_segments(transcription, window)

    def _stack_features(self, transcriptions: Sequence[Transcription]) -> Any:
        """Returns the features of each next window; only those of the first have been computed in prepare."""
        import torch

        device = self.model.device
        windows = [
            transcription.item.features
            if transcription.position == transcription.item.start
            else self._extract(transcription.item.samples, transcription.position, str(device))
            for transcription in transcriptions
        ]
        return torch.cat(windows).to(device, self.model.dtype)

    def _add_segments(self, transcription: Transcription, window: DecodedWindow) -> None:
        """Adds the segments of a window, unless it has no speech, and moves to the next window with sound."""
        samples, position = transcription.item.samples, transcription.position
        offset, seconds = position / self._rate, min(self._window_samples, len(samples) - position) / self._rate
        is_last = position + self._window_samples >= len(samples)
        segments, advance = split_segments(window.tokens, window.logs, self._special_tokens, seconds, is_last=is_last)
        if window.is_silent(self.decoder.thresholds):
            segments, advance = [], seconds
        for segment in segments:
            if text := self._tokenizer.decode(segment.tokens, skip_special_tokens=True).strip():
                confidence = sum(map(math.exp, segment.logs)) / len(segment.logs)
                transcription.segments.append(
                    SpeechSegment(text, offset + segment.start, offset + segment.end, confidence)
                )
        transcription.position = self._skip_silence(samples, position + math.ceil(advance * self._rate))
