"""Chooses the next token of each row: the most likely one, or a random one with the model's probabilities."""

import random
import secrets
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from experts.host.handler import Parameters

if TYPE_CHECKING:
    import torch

_MAX_SEED = 2**53
_CANDIDATES = 1024
"""Most likely tokens to which top-p is applied first: sorting a whole vocabulary takes ten times as long."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: greedily at temperature 0, else sampled."""

    temperature: float = 0.0
    seed: int | None = None

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> "Sampling":
        """Reads the parameters temperature and seed of a task."""
        return cls(float(parameters.get("temperature") or 0.0), parameters.get("seed"))


def build_sampler(generation_config: Any, sampling: Sampling) -> Any:
    """Returns a logits processor that draws each row's next token, and leaves a score to that token only.

    It is used with greedy decoding. Each row has its own random generator, from which it takes one number per token:
    with a seed, its tokens do not depend on other rows or on how many tokens top-k and top-p leave.

    Args:
        generation_config: the model's; its top_k and top_p are applied.
        sampling: temperature above 0, and the seed of every row; without one, rows have random seeds.
    """
    import torch
    from transformers import LogitsProcessor

    top_k, top_p = generation_config.top_k or 0, 1.0 if generation_config.top_p is None else generation_config.top_p

    def generator() -> random.Random:
        return random.Random(secrets.randbelow(_MAX_SEED) if sampling.seed is None else sampling.seed)  # noqa: S311  # no secret

    class Sampler(LogitsProcessor):
        def __init__(self) -> None:
            self._rows: list[random.Random] = []

        def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":  # noqa: ARG002
            self._rows = self._rows or [generator() for _ in scores]
            numbers = torch.tensor([[row.random()] for row in self._rows], dtype=torch.float64)
            drawn = draw_tokens(scores / sampling.temperature, numbers.to(scores.device), top_k=top_k, top_p=top_p)
            return torch.full_like(scores, -inf).scatter_(-1, drawn, 0.0)

    return Sampler()


def draw_tokens(
    scores: "torch.Tensor", numbers: "torch.Tensor", *, top_k: int = 0, top_p: float = 1.0
) -> "torch.Tensor":
    """Draws one token per row by inverting the cumulative distribution of the tokens that top-k and top-p leave.

    Args:
        scores: logits divided by the temperature, of shape (rows, vocabulary).
        numbers: uniformly distributed in [0, 1), of shape (rows, 1), float64, on the same device.
        top_k: number of most likely tokens to draw from; 0 for all.
        top_p: draws from the most likely tokens whose probabilities, after top_k, first reach this sum, and those as
            likely as the last of them; 1 for all.

    Returns:
        Token ids of shape (rows, 1).
    """
    if not top_k and top_p >= 1:
        return _invert(scores.softmax(-1), numbers)
    probabilities, tokens = _most_likely(scores, top_k, top_p)
    if top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        lowest = probabilities.masked_fill((before >= top_p) & (before > 0), inf).amin(-1, keepdim=True)
        probabilities = probabilities.masked_fill(probabilities < lowest, 0.0)
    tokens, order = tokens.sort(-1)  # tokens with almost the same score may change places from batch to batch
    return tokens.gather(-1, _invert(probabilities.gather(-1, order), numbers))


def _most_likely(scores: "torch.Tensor", top_k: int, top_p: float) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Returns probabilities and ids of the most likely tokens, best first: top_k, or at least as many as top_p needs.

    Probabilities after top_k sum to 1; others are those of the whole vocabulary.
    """
    best, tokens = scores.topk(min(top_k or _CANDIDATES, scores.shape[-1]))
    if top_k:
        return best.softmax(-1), tokens
    total = scores.logsumexp(-1, keepdim=True)
    probabilities = (best - total).exp()
    if bool((probabilities.sum(-1) < top_p).any()):
        best, tokens = scores.sort(-1, descending=True)
        probabilities = (best - total).exp()
    return probabilities, tokens


def _invert(probabilities: "torch.Tensor", numbers: "torch.Tensor") -> "torch.Tensor":
    """Returns the index at which the cumulative probability first exceeds the number's share of the total."""
    import torch

    cumulative = probabilities.cumsum(-1, dtype=torch.float64)
    index = torch.searchsorted(cumulative, numbers * cumulative[:, -1:], right=True)
    return index.clamp_(max=probabilities.shape[-1] - 1)
