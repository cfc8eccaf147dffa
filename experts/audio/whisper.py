"""Speech recognition by generating text with timestamps: Whisper and models of its architecture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experts.audio.languages import resolve_language
from experts.audio.timestamps import SpecialTokens, split_segments
from experts.audio.transcript import SpeechSegment, build_outputs
from experts.audio.waveforms import decode_samples, is_silent
from experts.host.handler import Call, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.torch_handler import TorchHandler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]


@dataclass
class TranscriptionItem:
    """Recording of one call, and the progress of its transcription."""

    samples: "Samples"
    language: str
    """Code of the model's vocabulary; empty until it is detected."""
    position: int = 0
    segments: list[SpeechSegment] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.position >= len(self.samples)


class WhisperTranscriber(TorchHandler):
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

    def prepare(self, inputs: Inputs, parameters: Parameters) -> TranscriptionItem:
        supported = [name.strip("<|>") for name in self._languages]
        language = resolve_language(parameters.get("language", ""), supported, self.model_id)
        return TranscriptionItem(decode_samples(inputs["audio"], self._rate), language)

    def cost(self, item: TranscriptionItem) -> float:
        return max(len(item.samples), self._window_samples) / self._rate

    def run(self, items: Sequence[TranscriptionItem], call: Call) -> list[TranscriptionItem]:
        """Runs one window of each item at a time: where the next window begins depends on the previous result."""
        items = [TranscriptionItem(item.samples, item.language) for item in items]  # a batch may be run again
        total = sum(len(item.samples) for item in items)
        while unfinished := [item for item in items if self._skip_silence(item)]:
            if call.cancelled:
                return []
            self._advance(unfinished)
            call.progress(min(1.0, sum(min(item.position, len(item.samples)) for item in items) / total))
        return items

    def finish(self, raw: TranscriptionItem) -> Outputs:
        return build_outputs(raw.segments, {"language": raw.language} if raw.language else {})

    def _skip_silence(self, item: TranscriptionItem) -> bool:
        """Skips silent windows, for which the model would invent text; returns whether speech may follow."""
        while not item.is_done and is_silent(item.samples[item.position : item.position + self._window_samples]):
            item.position += self._window_samples
        return not item.is_done

    def _advance(self, items: Sequence[TranscriptionItem]) -> None:
        parts = [item.samples[item.position : item.position + self._window_samples] for item in items]
        features = self._features(parts, sampling_rate=self._rate, return_tensors="pt")
        batch = move_to_device({"input_features": features["input_features"]}, self.model)
        with inference_context(self.model_id):
            self._detect_languages(items, batch["input_features"])
            out = self.model.generate(
                **batch,
                **({"language": [item.language for item in items], "task": "transcribe"} if self._languages else {}),
                return_timestamps=True,
                force_unique_generate_call=True,
                return_dict_in_generate=True,
                output_scores=True,
                do_sample=False,
                num_beams=1,
            )
            scores = self.model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
        start = out.sequences.shape[1] - scores.shape[1]
        rows = zip(items, parts, out.sequences[:, start:].tolist(), scores.float().tolist(), strict=True)
        for item, part, tokens, logs in rows:
            self._add_segments(item, len(part) / self._rate, tokens, logs)

    def _detect_languages(self, items: Sequence[TranscriptionItem], features: Any) -> None:
        unknown = [index for index, item in enumerate(items) if not item.language]
        if not self._languages or not unknown:
            return
        names = {token: name.strip("<|>") for name, token in self._languages.items()}
        for index, token in zip(unknown, self.model.detect_language(features[unknown]).tolist(), strict=True):
            items[index].language = names[token]

    def _add_segments(
        self, item: TranscriptionItem, seconds: float, tokens: Sequence[int], logs: Sequence[float]
    ) -> None:
        offset = item.position / self._rate
        is_last = item.position + self._window_samples >= len(item.samples)
        segments, advance = split_segments(tokens, logs, self._special_tokens, seconds, is_last=is_last)
        for segment in segments:
            if text := self._tokenizer.decode(segment.tokens, skip_special_tokens=True).strip():
                confidence = sum(map(math.exp, segment.logs)) / len(segment.logs)
                item.segments.append(SpeechSegment(text, offset + segment.start, offset + segment.end, confidence))
        item.position += math.ceil(advance * self._rate)
