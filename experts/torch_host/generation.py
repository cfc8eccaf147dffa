"""Generates tokens for a batch of items of different lengths; each result is independent of the batch."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call
from experts.torch_host.devices import inference_context
from experts.torch_host.non_finite import build_score_checker
from experts.torch_host.sampling import Sampling, build_sampler

if TYPE_CHECKING:
    import torch

_PROGRESS_SECONDS = 0.5


def generate_tokens(
    model: Any,
    inputs: Mapping[str, Any],
    call: Call,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    model_id: str = "",
    report_progress: bool = True,
    **options: Any,
) -> list[list[int]]:
    """Returns the new tokens of each item, without prompt and padding.

    With a seed, an item's tokens depend only on the seed and the item, not on its batch or on other calls.

    Args:
        model: a model with `generate`.
        inputs: a batch as collated by the processor; padded on the left if the model has no encoder.
        call: stops the generation when it is cancelled; receives progress.
        max_new_tokens: maximum length of a result.
        sampling: None for greedy decoding.
        model_id: for messages.
        report_progress: False if the generation is one of several passes, whose caller reports progress.
        options: further options of `generate`, such as forced_bos_token_id.

    Raises:
        ModelFailed: its scores were not finite.
    """
    batch = move_to_device(inputs, model)
    prompt_ids = batch.get("decoder_input_ids" if model.config.is_encoder_decoder else "input_ids")
    prompt_length = int(model.config.is_encoder_decoder) if prompt_ids is None else prompt_ids.shape[1]
    if sampling and sampling.temperature > 0:
        options |= {"num_beams": 1, "logits_processor": [build_sampler(model.generation_config, sampling)]}
    scores = build_score_checker()
    options["logits_processor"] = [scores, *options.get("logits_processor", ())]
    with inference_context(model_id):
        tokens = model.generate(
            **batch,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            stopping_criteria=[_stopping_criterion(call, max_new_tokens if report_progress else 0)],
            **options,
        )
        scores.check(model_id)
    return [_truncate_at_end(row[prompt_length:], model) for row in tokens.tolist()]


def move_to_device(inputs: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Moves a batch to the model's device, and floating-point values to its dtype; does not wait for a GPU."""
    return {name: _move(value, model.device, model.dtype) for name, value in inputs.items()}


def _move(value: Any, device: "torch.device", dtype: "torch.dtype") -> Any:
    if device.type == "cuda" and value.device.type == "cpu":
        value = value.pin_memory().to(device, non_blocking=True)  # other memory is copied while the host waits
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)


def _truncate_at_end(tokens: Sequence[int], model: Any) -> list[int]:
    """Truncates tokens at the first end of text; the rest is padding of the batch."""
    ends = model.generation_config.eos_token_id
    ends = {ends} if isinstance(ends, int) else set(ends or ())
    last = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
    return list(tokens[:last])


def _stopping_criterion(call: Call, max_tokens: int) -> Any:
    """Returns a criterion that stops a cancelled call, and reports progress if the maximum length is known."""
    import torch
    from transformers import StoppingCriteria

    class StopWhenCancelled(StoppingCriteria):
        def __init__(self) -> None:
            self._count, self._reported = 0, time.monotonic()

        def __call__(self, input_ids: "torch.Tensor", scores: Any, **_: Any) -> "torch.Tensor":  # noqa: ARG002
            self._count += 1
            if max_tokens and time.monotonic() - self._reported >= _PROGRESS_SECONDS:
                self._reported = time.monotonic()
                call.progress(self._count / max_tokens, f"{self._count} tokens")
            return torch.full((len(input_ids),), call.cancelled, device=input_ids.device, dtype=torch.bool)

    return StopWhenCancelled()
