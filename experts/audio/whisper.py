"""Speech recognition by generating text with times in it: Whisper and what is built like it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experts.audio.languages import spoken_language
from experts.audio.timestamps import Marks, segments
from experts.audio.transcript import Said, written
from experts.audio.waveforms import heard, is_silent
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
class Recording:
    """One caller's, and how far it is written down."""

    samples: "Samples"
    language: str
    """As the model's vocabulary has it; empty: to be detected."""
    place: int = 0
    said: list[Said] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.place >= len(self.samples)


class Whisper(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._features = processor.tokenizer, processor.feature_extractor
        self._rate = int(self._features.sampling_rate)
        self._size = int(self._features.n_samples)
        advised = model.generation_config
        specials = frozenset(self._tokenizer.all_special_ids)
        self._marks = Marks(advised.no_timestamps_token_id + 1, self._tokenizer.eos_token_id, specials)
        self._languages: dict[str, int] = getattr(advised, "lang_to_id", None) or {}

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Recording:
        known = [name.strip("<|>") for name in self._languages]
        language = spoken_language(parameters.get("language", ""), known, self.model_id)
        return Recording(heard(inputs["audio"], self._rate), language)

    def cost(self, item: Recording) -> float:
        return max(len(item.samples), self._size) / self._rate

    def run(self, items: Sequence[Recording], call: Call) -> list[Recording]:
        """A window of each at a time; where the next begins depends on what was said in the one before."""
        items = [Recording(item.samples, item.language) for item in items]  # a batch may be run again
        total = sum(len(item.samples) for item in items)
        while waiting := [item for item in items if self._goes_on(item)]:
            if call.cancelled:
                return []
            self._advance(waiting)
            call.progress(min(1.0, sum(min(item.place, len(item.samples)) for item in items) / total))
        return items

    def finish(self, raw: Recording) -> Outputs:
        return written(raw.said, {"language": raw.language} if raw.language else {})

    def _goes_on(self, item: Recording) -> bool:
        """Passes over silence, in which the model would hear something."""
        while not item.is_done and is_silent(item.samples[item.place : item.place + self._size]):
            item.place += self._size
        return not item.is_done

    def _advance(self, items: Sequence[Recording]) -> None:
        parts = [item.samples[item.place : item.place + self._size] for item in items]
        features = self._features(parts, sampling_rate=self._rate, return_tensors="pt")
        placed = move_to_device({"input_features": features["input_features"]}, self.model)
        with inference_context(self.model_id):
            self._detect(items, placed["input_features"])
            out = self.model.generate(
                **placed,
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
            self._take(item, len(part) / self._rate, tokens, logs)

    def _detect(self, items: Sequence[Recording], features: Any) -> None:
        unknown = [place for place, item in enumerate(items) if not item.language]
        if not self._languages or not unknown:
            return
        names = {token: name.strip("<|>") for name, token in self._languages.items()}
        for place, token in zip(unknown, self.model.detect_language(features[unknown]).tolist(), strict=True):
            items[place].language = names[token]

    def _take(self, item: Recording, seconds: float, tokens: Sequence[int], logs: Sequence[float]) -> None:
        offset = item.place / self._rate
        is_last = item.place + self._size >= len(item.samples)
        found, moves = segments(tokens, logs, self._marks, seconds, is_last=is_last)
        for one in found:
            if text := self._tokenizer.decode(one.tokens, skip_special_tokens=True).strip():
                confidence = sum(map(math.exp, one.logs)) / len(one.logs)
                item.said.append(Said(text, offset + one.start, offset + one.end, confidence))
        item.place += math.ceil(moves * self._rate)
