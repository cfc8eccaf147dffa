"""Music and sounds from a description, by generating the tokens of a sound codec: MusicGen."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from experts.audio.random_seed import seeded
from experts.audio.waveforms import recording
from experts.host.handler import UNBATCHED, Batching, Call, Handler, Inputs, Outputs, Parameters
from experts.host.parameters import port_of
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import build_score_checker
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

LONGEST = 30.0
"""Seconds: what the models were trained with; beyond it they drift into noise."""

_USUAL = 8.0
_LONGEST_TEXT = 512
"""Tokens that are read."""
_MOST_CHARACTERS = 5_000
_TELL = 25
_LARGEST_SEED = 2**53


@dataclass(frozen=True)
class GenerationItem:
    """One caller's."""

    tokens: Any
    seconds: float
    seed: int


def text_to_audio(model_id: str, device: str) -> Handler:
    """MusicGen."""
    from transformers import AutoProcessor, MusicgenForConditionalGeneration

    checkpoint = Checkpoint.fetch(model_id, device)
    processor = checkpoint.processor(AutoProcessor)
    return Composer(checkpoint, checkpoint.model(MusicgenForConditionalGeneration), processor.tokenizer)


class Composer(TorchHandler):
    batching: ClassVar[Batching] = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._codec = tokenizer, model.config.audio_encoder

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        if not inputs["text"].strip():
            raise InvalidRequest("the text is empty", port="text", remedy="say what it should sound like")
        if (length := len(inputs["text"])) > _MOST_CHARACTERS:
            raise InvalidRequest(
                f"the text has {length} characters, the limit is {_MOST_CHARACTERS}",
                port="text",
                reason="TOO_LARGE",
                remedy="describe it in a few sentences",
            )
        seconds = float(parameters.get("duration", _USUAL))
        if seconds > LONGEST:
            raise InvalidRequest(
                f"{self.model_id} makes at most {LONGEST:g} s at once, not the duration of {seconds:g} s",
                remedy="ask for a shorter duration",
                port=port_of("duration"),
            )
        seed = parameters.get("seed")
        tokens = self._tokenizer(inputs["text"], truncation=True, max_length=_LONGEST_TEXT, return_tensors="pt")
        return GenerationItem(tokens, seconds, secrets.randbelow(_LARGEST_SEED) if seed is None else int(seed))

    def cost(self, item: GenerationItem) -> float:
        return item.seconds

    def run(self, items: Sequence[GenerationItem], call: Call) -> list[Any]:
        return [self._composed(item, call) for item in items]

    def finish(self, raw: Any) -> Outputs:
        return {"audio": recording(raw, int(self._codec.sampling_rate), "sound.wav")}

    def _composed(self, item: GenerationItem, call: Call) -> Any:
        """One channel, cut to the length asked for."""
        books = self.model.config.decoder.num_codebooks
        count = round(item.seconds * self._codec.frame_rate) + books  # they start one after the other
        scores = build_score_checker()
        with inference_context(self.model_id), seeded(item.seed, self.model.device):
            sound = self.model.generate(
                **move_to_device(item.tokens, self.model),
                max_new_tokens=count,
                do_sample=True,
                logits_processor=[scores],
                stopping_criteria=[_watching(call, count)],
            )
            scores.check(self.model_id)
        mono = sound[0].float().mean(0).cpu().numpy()
        return mono[: round(item.seconds * self._codec.sampling_rate)]


def _watching(call: Call, count: int) -> Any:
    """Stops when the call is cancelled, and reports progress."""
    import torch
    from transformers import StoppingCriteria

    class Watching(StoppingCriteria):
        made = 0

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:  # noqa: ARG002
            self.made += 1
            if self.made % _TELL == 0:
                call.progress(min(1.0, self.made / count))
            return torch.full((len(input_ids),), call.cancelled, device=input_ids.device, dtype=torch.bool)

    return Watching()
