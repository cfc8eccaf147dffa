"""Words that a model writes about pictures, with how sure it is of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call
from experts.torch_host.generation import generate_tokens

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Written:
    """Tokens, and how likely the model found all of them together."""

    tokens: list[int]
    score: float


def written(
    model: Any, inputs: Mapping[str, "torch.Tensor"], call: Call, *, max_new_tokens: int, model_id: str, **options: Any
) -> list[Written]:
    """What a model writes, always the likeliest token."""
    recorder = _recorder()
    options = {"num_beams": 1, "logits_processor": [recorder], **options}
    rows = generate_tokens(model, inputs, call, max_new_tokens=max_new_tokens, model_id=model_id, **options)
    return [Written(tokens, recorder.likelihood(row, len(tokens) + 1)) for row, tokens in enumerate(rows)]


def _recorder() -> Any:
    """Notes how likely the likeliest token is at each step."""
    import torch
    from transformers import LogitsProcessor

    class Recorder(LogitsProcessor):
        def __init__(self) -> None:
            self._steps: list[torch.Tensor] = []

        def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":  # noqa: ARG002
            self._steps.append(scores.float().log_softmax(-1).amax(-1).cpu())
            return scores

        def likelihood(self, row: int, steps: int) -> float:
            """Of the first steps, of those there were; the last one ends the text."""
            logs = [float(step[row]) for step in self._steps[:steps]]
            return float(torch.tensor(logs).sum().exp())

    return Recorder()


def text_of(tokenizer: Any, tokens: Sequence[int]) -> str:
    return " ".join(str(tokenizer.decode(tokens, skip_special_tokens=True)).split())
