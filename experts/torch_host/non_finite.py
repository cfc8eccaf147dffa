"""Checks for NaN and infinity: a model whose numbers overflow has failed, and must not return an empty result."""

from typing import TYPE_CHECKING, Any

from services.common.errors import ModelFailed

if TYPE_CHECKING:
    import torch


def require_finite(values: "torch.Tensor", model_id: str) -> "torch.Tensor":
    """Returns the values unchanged; minus infinity is allowed, since it is used for masking.

    Raises:
        ModelFailed: a value is NaN or infinity.
    """
    if bool(_is_broken(values).any()):
        raise not_finite_error(model_id)
    return values


def not_finite_error(model_id: str) -> ModelFailed:
    return ModelFailed(
        f"{model_id} failed on this input: its numbers are not finite",
        remedy="try another input, or let the operator run the model in float32 (EXPERT_DEVICES)",
    )


def build_score_checker() -> Any:
    """Returns a logits processor that records scores that are not finite; its `check` raises after the generation.

    It replaces them by 0, because sampling from them would corrupt the GPU's context for all later calls.
    """
    import torch
    from transformers import LogitsProcessor

    class ScoreChecker(LogitsProcessor):
        def __init__(self) -> None:
            self._found: torch.Tensor | None = None

        def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":  # noqa: ARG002
            broken = _is_broken(scores)
            self._found = broken.any() if self._found is None else self._found | broken.any()
            return scores.masked_fill(broken, 0)

        def check(self, model_id: str) -> None:
            if self._found is not None and bool(self._found):
                raise not_finite_error(model_id)

    return ScoreChecker()


def _is_broken(values: "torch.Tensor") -> "torch.Tensor":
    return values.isnan() | values.isposinf()
