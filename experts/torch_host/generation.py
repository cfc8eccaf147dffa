"""Generating tokens for a batch of items whose lengths differ, so that each gets what it would get alone."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Parameters
from experts.torch_host.devices import computing
from experts.torch_host.non_finite import watching

if TYPE_CHECKING:
    import torch

_TELL_SECONDS = 0.5
_LARGEST_SEED = 2**53


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the likeliest, unless there is a temperature."""

    temperature: float = 0.0
    seed: int | None = None

    @classmethod
    def of(cls, parameters: Parameters) -> "Sampling":
        """From the parameters temperature and seed of a task."""
        return cls(float(parameters.get("temperature") or 0.0), parameters.get("seed"))


def generated(
    model: Any,
    inputs: Mapping[str, Any],
    call: Call,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    model_id: str = "",
    tell: bool = True,
    **options: Any,
) -> list[list[int]]:
    """The new tokens of each item, without the prompt and without what pads them.

    Where there is a seed, an item's tokens depend on it and the item alone, not on its batch or on what else runs.

    Args:
        model: any with generate.
        inputs: a batch as the processor collates it; padded on the left if the model has no encoder.
        call: stopped when nobody waits for it any more; told how far it is.
        max_new_tokens: longest result.
        sampling: greedy if absent.
        model_id: for messages.
        tell: how far it is; not if it is but one pass of several, which tell that themselves.
        options: more for generate, such as forced_bos_token_id.

    Raises:
        ModelFailed: its scores were no numbers.
    """
    placed = on_device(inputs, model)
    given = placed.get("decoder_input_ids" if model.config.is_encoder_decoder else "input_ids")
    prompt = int(model.config.is_encoder_decoder) if given is None else given.shape[1]
    if sampling and sampling.temperature > 0:
        options |= {"num_beams": 1, "logits_processor": [_sampler(model, sampling)]}
    scores = watching()
    options["logits_processor"] = [scores, *options.get("logits_processor", ())]
    with computing(model_id):
        tokens = model.generate(
            **placed,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            stopping_criteria=[_watching(call, max_new_tokens if tell else 0)],
            **options,
        )
        scores.check(model_id)
    return [_trimmed(row[prompt:], model) for row in tokens.tolist()]


def on_device(inputs: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """A batch where the model is, numbers that are no counts in its dtype."""
    return {
        name: value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)
        for name, value in inputs.items()
    }


def _trimmed(tokens: Sequence[int], model: Any) -> list[int]:
    """Up to the first end of text: what follows pads the shorter rows of a batch."""
    ends = model.generation_config.eos_token_id
    ends = {ends} if isinstance(ends, int) else set(ends or ())
    last = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
    return list(tokens[:last])


def _watching(call: Call, longest: int) -> Any:
    """Stops generating when nobody waits, and tells how far it is now and then, if it knows how long it may get."""
    import torch
    from transformers import StoppingCriteria

    class Watching(StoppingCriteria):
        def __init__(self) -> None:
            self._count, self._told = 0, time.monotonic()

        def __call__(self, input_ids: "torch.Tensor", scores: Any, **_: Any) -> "torch.Tensor":  # noqa: ARG002
            self._count += 1
            if longest and time.monotonic() - self._told >= _TELL_SECONDS:
                self._told = time.monotonic()
                call.progress(self._count / longest, f"{self._count} tokens")
            return torch.full((len(input_ids),), call.cancelled, device=input_ids.device, dtype=torch.bool)

    return Watching()


def _sampler(model: Any, sampling: Sampling) -> Any:
    """Chooses by chance under argmax: the largest of logits plus Gumbel noise is a sample of their softmax.

    The noise of each row comes from a generator of its own: torch's, which generate would use, all threads share.
    """
    import torch
    from transformers import LogitsProcessor

    warpers = _warpers(model, sampling.temperature)

    def seed() -> int:
        return secrets.randbelow(_LARGEST_SEED) if sampling.seed is None else sampling.seed

    class Sampler(LogitsProcessor):
        def __init__(self) -> None:
            self._rows: list[torch.Generator] = []

        def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
            for warper in warpers:
                scores = warper(input_ids, scores)
            if not self._rows:
                self._rows = [torch.Generator().manual_seed(seed()) for _ in range(len(scores))]
            noise = [torch.rand(scores.shape[1], generator=row, dtype=torch.float64) for row in self._rows]
            uniform = torch.stack(noise).clamp_(min=torch.finfo(torch.float64).tiny)
            return scores - torch.log(-torch.log(uniform)).to(scores)

    return Sampler()


def _warpers(model: Any, temperature: float) -> list[Any]:
    """What the model's makers advise for sampling, at the temperature asked for."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    advised = model.generation_config
    warpers: list[Any] = [TemperatureLogitsWarper(temperature)]
    if advised.top_k:
        warpers.append(TopKLogitsWarper(advised.top_k))
    if advised.top_p is not None and advised.top_p < 1:
        warpers.append(TopPLogitsWarper(advised.top_p))
    return warpers
