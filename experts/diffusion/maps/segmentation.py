"""Maps of what is where, in the colours of ADE20K that ControlNet learned."""

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.map_maker import Drawer
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import move_to_device
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from PIL.Image import Image


def seg_control(model_id: str, device: str) -> Handler:
    """Any semantic segmentation of transformers with ADE20K's classes."""
    from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

    checkpoint = Checkpoint.fetch(model_id, device)
    model = checkpoint.model(AutoModelForSemanticSegmentation)
    if model.config.num_labels > len(colours()):
        raise FailedPrecondition(
            f"{model_id} has {model.config.num_labels} classes, ADE20K {len(colours())}",
            reason="LOAD_FAILED",
            remedy="take a model trained on ADE20K: ControlNet knows its colours only",
        )
    return Segments(checkpoint, model, checkpoint.processor(AutoImageProcessor))


@cache
def colours() -> Any:
    """ADE20K's colour of each of its 150 classes, as the authors of the data set chose them (BSD-3-Clause)."""
    import numpy as np

    text = (files(__package__) / "ade20k.json").read_text(encoding="utf-8")
    return np.array(json.loads(text), dtype=np.uint8)


class Segments(Drawer):
    """Every pixel in the colour of what it belongs to."""

    suffix = "segments"

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._processor = processor

    def look(self, picture: "Image") -> Any:
        """The class of each pixel."""
        from torch.nn.functional import interpolate

        batch = self._processor(images=picture, return_tensors="pt")
        logits = self.model(**move_to_device(batch, self.model)).logits.float()
        self.checked(logits.cpu().numpy())
        whole = interpolate(logits, (picture.height, picture.width), mode="bilinear", align_corners=False)
        return whole[0].argmax(0).cpu().numpy()

    def draw(self, found: Any, picture: "Image") -> "Image":  # noqa: ARG002  # it is as large as the picture
        from PIL import Image

        return Image.fromarray(colours()[found])
