"""Converts logits to labels with scores."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from services.common.errors import ModelFailed

if TYPE_CHECKING:
    import torch

DIGITS = 4
"""Decimals of scores; further digits depend on the shape of the batch."""

Labels = list[dict[str, Any]]


def to_probabilities(logits: "torch.Tensor", *, multi_label: bool = False) -> list[list[float]]:
    """Returns probabilities along the last dimension of a batch; with multi_label, each label is independent."""
    import torch

    exact = logits.detach().to("cpu", torch.float32)
    rows: list[list[float]] = (exact.sigmoid() if multi_label else exact.softmax(-1)).tolist()
    return rows


def is_multi_label(config: Any) -> bool:
    """Whether a model is multi-label: several labels may apply at once."""
    return bool(config.problem_type == "multi_label_classification" or config.num_labels == 1)


def label_names(config: Any) -> list[str]:
    """Returns the names of a model's classes, in the order of its logits."""
    names: Mapping[int, str] = config.id2label
    return [str(names[index]) for index in range(len(names))]


def top_labels(scores: Sequence[float], labels: Sequence[str], top_k: int | None = None) -> Labels:
    """Returns the top_k labels with rounded scores, best first; all labels by default.

    Raises:
        ModelFailed: a score is not finite.
    """
    if not all(math.isfinite(score) for score in scores):
        raise ModelFailed("the model's scores are not finite", remedy="try another input or another model")
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[:top_k]
    return [{"label": labels[index], "score": round(scores[index], DIGITS)} for index in order]
