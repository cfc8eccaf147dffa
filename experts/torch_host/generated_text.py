"""Text generation from images, with the probability of the text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call
from experts.torch_host.generation import generate_tokens

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class GeneratedText:
    """Generated tokens, with the product of their probabilities."""

    tokens: list[int]
    score: float


def generate_text(
    model: Any, inputs: Mapping[str, "torch.Tensor"], call: Call, *, max_new_tokens: int, model_id: str, **options: Any
) -> list[GeneratedText]:
    """Generates text greedily."""
    recorder = _recorder()
    options = {"num_beams": 1, "logits_processor": [recorder], **options}
    rows = generate_tokens(model, inputs, call, max_new_tokens=max_new_tokens, model_id=model_id, **options)
    scores = recorder.probabilities([len(tokens) + 1 for tokens in rows])
    return [GeneratedText(tokens, score) for tokens, score in zip(rows, scores, strict=True)]


def _recorder() -> Any:
    """Returns a logits processor that records the probability of the most likely token at each step."""
    import torch
    from transformers import LogitsProcessor

    class Recorder(LogitsProcessor):
        def __init__(self) -> None:
            self._steps: list[torch.Tensor] = []
            """Log-probability of each row by step; on the device, because a copy would wait for it at each token."""

        def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":  # noqa: ARG002
            self._steps.append(scores.float().log_softmax(-1).amax(-1))
            return scores

        def probabilities(self, counts: Sequence[int]) -> list[float]:
            """Returns the probability of each row's first steps, or of all if fewer; the last token ends the text."""
            logs = torch.stack(self._steps, dim=1).cpu()
            return [float(row[:count].sum().exp()) for row, count in zip(logs, counts, strict=True)]

    return Recorder()


def decode_text(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Decodes tokens to one line of text."""
    return " ".join(str(tokenizer.decode(tokens, skip_special_tokens=True)).split())
