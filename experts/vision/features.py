"""A picture as a vector of length 1."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Outputs
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.vision.image_batches import Seen, Viewer, stacked

if TYPE_CHECKING:
    import torch

_DIGITS = 5
_TOKENS = 3
"""Dimensions of an output with a row for each patch."""


def image_feature_extraction(model_id: str, device: str) -> Handler:
    """Any model of pictures; of one of pictures and texts, the space they share."""
    from transformers import AutoImageProcessor, AutoModel

    checkpoint = Checkpoint.fetch(model_id, device)
    return Features(checkpoint, checkpoint.model(AutoModel), checkpoint.processor(AutoImageProcessor))


class Features(Viewer):
    def look(self, items: Sequence[Seen]) -> list[list[float]]:
        import torch

        with inference_context(self.model_id):
            found = _vectors(self.model, move_to_device(stacked([item.tensors for item in items]), self.model))
        rows: list[list[float]] = torch.nn.functional.normalize(found.float(), dim=-1).tolist()
        return rows

    def finish(self, raw: list[float]) -> Outputs:
        return {"embedding": [round(value, _DIGITS) for value in raw]}


def _vectors(model: Any, batch: dict[str, "torch.Tensor"]) -> "torch.Tensor":
    """The class token; heads for a summary are often missing in checkpoints, and would be random."""
    if hasattr(model, "get_image_features"):
        found = model.get_image_features(**batch)
        return getattr(found, "pooler_output", found)  # type: ignore[no-any-return]
    hidden: torch.Tensor = model(**batch).last_hidden_state
    return hidden[:, 0] if hidden.ndim == _TOKENS else hidden.mean((-2, -1))
