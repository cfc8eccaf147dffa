"""Music and sounds from a description, by generating the tokens of an audio codec (MusicGen)."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.audio.random_seed import use_seed
from experts.audio.waveforms import encode_recording
from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import build_score_checker
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

MAX_SECONDS = 30.0
"""Length of the models' training data; longer results degrade to noise."""

_DEFAULT_SECONDS = 8.0
_MAX_TEXT_TOKENS = 512
"""Maximum tokens of a description; the rest is ignored."""
_MAX_CHARACTERS = 5_000
_PROGRESS_STEPS = 25
"""Steps between two progress reports."""
_MAX_SEED = 2**53


@dataclass(frozen=True)
class GenerationItem:
    """Tokenized description of one call, with length and seed."""

    tokens: Any
    seconds: float
    seed: int


def text_to_audio(model_id: str, device: str) -> Handler:
    """Loads MusicGen."""
    from transformers import AutoProcessor, MusicgenForConditionalGeneration

    checkpoint = Checkpoint.fetch(model_id, device)
    processor = checkpoint.processor(AutoProcessor)
    return MusicGenerator(checkpoint, checkpoint.model(MusicgenForConditionalGeneration), processor.tokenizer)


class MusicGenerator(TorchHandler):
    """Generates music and sounds."""

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._codec = tokenizer, model.config.audio_encoder

    def prepare(self, inputs: Inputs, parameters: Parameters) -> GenerationItem:
        if not inputs["text"].strip():
            raise InvalidRequest("the text is empty", port="text", remedy="describe the sound")
        if (length := len(inputs["text"])) > _MAX_CHARACTERS:
            raise InvalidRequest(
                f"the text has {length} characters; the limit is {_MAX_CHARACTERS}",
                port="text",
                reason="TOO_LARGE",
                remedy="describe it in a few sentences",
            )
        seconds = float(parameters.get("duration", _DEFAULT_SECONDS))
        if seconds > MAX_SECONDS:
            raise InvalidRequest(
                f"the duration is {seconds:g} s; the limit of {self.model_id} is {MAX_SECONDS:g} s",
                remedy="request a shorter duration",
                port=parameter_port("duration"),
            )
        seed = parameters.get("seed")
        tokens = self._tokenizer(inputs["text"], truncation=True, max_length=_MAX_TEXT_TOKENS, return_tensors="pt")
        return GenerationItem(tokens, seconds, secrets.randbelow(_MAX_SEED) if seed is None else int(seed))

    def cost(self, item: GenerationItem) -> float:
        return item.seconds

    def run(self, items: Sequence[GenerationItem], call: Call) -> list[Any]:
        return [self._generate(item, call) for item in items]

    def finish(self, raw: Any) -> Outputs:
        return {"audio": encode_recording(raw, int(self._codec.sampling_rate), "sound.wav")}

    def _generate(self, item: GenerationItem, call: Call) -> Any:
        """Generates one channel of the requested length."""
        codebooks = self.model.config.decoder.num_codebooks
        count = round(item.seconds * self._codec.frame_rate) + codebooks  # codebooks are delayed by one step each
        scores = build_score_checker()
        with inference_context(self.model_id), use_seed(item.seed, self.model.device):
            sound = self.model.generate(
                **move_to_device(item.tokens, self.model),
                max_new_tokens=count,
                do_sample=True,
                logits_processor=[scores],
                stopping_criteria=[_stopping_criterion(call, count)],
            )
            scores.check(self.model_id)
        samples = sound[0].float().mean(0).cpu().numpy()
        return samples[: round(item.seconds * self._codec.sampling_rate)]


def _stopping_criterion(call: Call, count: int) -> Any:
    """Returns a criterion that stops a cancelled call and reports progress."""
    import torch
    from transformers import StoppingCriteria

    class StopWhenCancelled(StoppingCriteria):
        steps = 0

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:  # noqa: ARG002
            self.steps += 1
            if self.steps % _PROGRESS_STEPS == 0:
                call.progress(min(1.0, self.steps / count))
            return torch.full((len(input_ids),), call.cancelled, device=input_ids.device, dtype=torch.bool)

    return StopWhenCancelled()
