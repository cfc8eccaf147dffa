"""Numbers that are none: a model whose numbers overflow has failed, and does not mean that there is nothing."""

from typing import TYPE_CHECKING, Any

from services.common.errors import ModelFailed

if TYPE_CHECKING:
    import torch


def checked(values: "torch.Tensor", model_id: str) -> "torch.Tensor":
    """The values as they are; minus infinity may be among them, since it masks what does not count.

    Raises:
        ModelFailed: one of them is no number.
    """
    if bool(_broken(values).any()):
        raise not_finite(model_id)
    return values


def not_finite(model_id: str) -> ModelFailed:
    return ModelFailed(
        f"{model_id} failed on this input: its numbers are not finite",
        remedy="try another input, or let the operator run the model in float32 (EXPERT_DEVICES)",
    )


def watching() -> Any:
    """A logits processor that notes whether scores were no numbers; `check` tells when all is generated.

    It replaces them: where tokens are sampled, such a score would break the GPU's context for all that follows.
    """
    import torch
    from transformers import LogitsProcessor

    class Watching(LogitsProcessor):
        def __init__(self) -> None:
            self._broken: torch.Tensor | None = None

        def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":  # noqa: ARG002
            broken = _broken(scores)
            self._broken = broken.any() if self._broken is None else self._broken | broken.any()
            return scores.masked_fill(broken, 0)

        def check(self, model_id: str) -> None:
            if self._broken is not None and bool(self._broken):
                raise not_finite(model_id)

    return Watching()


def _broken(values: "torch.Tensor") -> "torch.Tensor":
    return values.isnan() | values.isposinf()
