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
    return [GeneratedText(tokens, recorder.probability(row, len(tokens) + 1)) for row, tokens in enumerate(rows)]


def _recorder() -> Any:
    """Returns a logits processor that records the probability of the most likely token at each step."""
    import torch
    from transformers import LogitsProcessor

    class Recorder(LogitsProcessor):
        def __init__(self) -> None:
            self._steps: list[torch.Tensor] = []

        def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":  # noqa: ARG002
            self._steps.append(scores.float().log_softmax(-1).amax(-1).cpu())
            return scores

        def probability(self, row: int, steps: int) -> float:
            """Returns the probability of the first steps, or of all if fewer; the last token ends the text."""
            logs = [float(step[row]) for step in self._steps[:steps]]
            return float(torch.tensor(logs).sum().exp())

    return Recorder()


def decode_text(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Decodes tokens to one line of text."""
    return " ".join(str(tokenizer.decode(tokens, skip_special_tokens=True)).split())
