"""Segmentation maps, in the colours of ADE20K on which ControlNet was trained."""

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.map_handler import MapHandler
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import move_to_device
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from PIL.Image import Image


def seg_control(model_id: str, device: str) -> Handler:
    """Loads any semantic segmentation model of transformers with ADE20K's classes."""
    from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

    checkpoint = Checkpoint.fetch(model_id, device)
    model = checkpoint.model(AutoModelForSemanticSegmentation)
    if model.config.num_labels > len(load_palette()):
        raise FailedPrecondition(
            f"{model_id} has {model.config.num_labels} classes, ADE20K {len(load_palette())}",
            reason="LOAD_FAILED",
            remedy="choose a model trained on ADE20K: ControlNet supports only its colours",
        )
    return SegmentationMap(checkpoint, model, checkpoint.processor(AutoImageProcessor))


@cache
def load_palette() -> Any:
    """Returns ADE20K's colour of each of its 150 classes, as defined by the authors of the data set (BSD-3-Clause)."""
    import numpy as np

    text = (files(__package__) / "ade20k.json").read_text(encoding="utf-8")
    return np.array(json.loads(text), dtype=np.uint8)


class SegmentationMap(MapHandler):
    """Draws every pixel in the colour of its class."""

    suffix = "segments"

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._processor = processor

    def predict(self, picture: "Image") -> Any:
        """Returns the class of each pixel."""
        from torch.nn.functional import interpolate

        batch = self._processor(images=picture, return_tensors="pt")
        logits = self.model(**move_to_device(batch, self.model)).logits.float()
        self.check_finite(logits.cpu().numpy())
        whole = interpolate(logits, (picture.height, picture.width), mode="bilinear", align_corners=False)
        return whole[0].argmax(0).cpu().numpy()

    def draw(self, prediction: Any, picture: "Image") -> "Image":  # noqa: ARG002  # the prediction has the picture's size
        from PIL import Image

        return Image.fromarray(load_palette()[prediction])
