"""Image features: a vector of length 1 per image."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Outputs
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.torch_handler import copy_to_host
from experts.torch_host.weight_checks import POOLER
from experts.vision.image_batches import ImageHandler, ImageItem, stack_tensors

if TYPE_CHECKING:
    import torch

_DIGITS = 5
_PATCH_DIMENSIONS = 3
"""Dimensions of an output with a vector per patch: batch, patch, feature."""


def image_feature_extraction(model_id: str, device: str) -> Handler:
    """Loads an image encoder; of a model of images and texts, vectors are in their shared space."""
    from transformers import AutoImageProcessor, AutoModel

    checkpoint = Checkpoint.fetch(model_id, device)
    return FeatureExtractor(
        checkpoint, checkpoint.model(AutoModel, unused=[POOLER]), checkpoint.processor(AutoImageProcessor)
    )


class FeatureExtractor(ImageHandler):
    def forward_batch(self, items: Sequence[ImageItem]) -> "torch.Tensor":
        import torch

        with inference_context(self.model_id):
            vectors = _compute_vectors(
                self.model, move_to_device(stack_tensors([item.tensors for item in items]), self.model)
            )
            return copy_to_host(torch.nn.functional.normalize(vectors.float(), dim=-1))

    def read_batch(self, items: Sequence[ImageItem], output: "torch.Tensor") -> list[list[float]]:  # noqa: ARG002
        rows: list[list[float]] = output.tolist()
        return rows

    def finish(self, raw: list[float]) -> Outputs:
        return {"embedding": [round(value, _DIGITS) for value in raw]}


def _compute_vectors(model: Any, batch: dict[str, "torch.Tensor"]) -> "torch.Tensor":
    """Returns the vector of the class token; pooling heads are often missing in checkpoints, and would be random."""
    if hasattr(model, "get_image_features"):
        vectors = model.get_image_features(**batch)
        return getattr(vectors, "pooler_output", vectors)  # type: ignore[no-any-return]
    hidden: torch.Tensor = model(**batch).last_hidden_state
    return hidden[:, 0] if hidden.ndim == _PATCH_DIMENSIONS else hidden.mean((-2, -1))
