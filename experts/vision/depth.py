"""Depth estimation; results are images in which near is bright."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Outputs
from experts.host.media import png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.torch_handler import copy_to_host
from experts.vision.image_batches import ImageHandler, ImageItem, InputImage
from services.common.errors import ModelFailed

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from PIL.Image import Image

    Depth = NDArray[np.float32]

_METRIC_MODELS = {"zoedepth", "glpn", "prompt_depth_anything", "depth_pro"}
"""Models that return distances in metres; most others return relative nearness."""
_COLOURS = ((0, 0, 4), (66, 10, 104), (147, 38, 103), (221, 81, 58), (252, 165, 10), (252, 255, 164))
"""Colour map from far to near; its brightness increases, so it is readable in grey too."""


def depth_estimation(model_id: str, device: str) -> Handler:
    """Loads a depth estimation model, without padding of the image."""
    from transformers import AutoImageProcessor, AutoModelForDepthEstimation

    checkpoint = Checkpoint.fetch(model_id, device)
    processor = checkpoint.processor(AutoImageProcessor)
    if getattr(processor, "do_pad", None):
        processor.do_pad = False
    return DepthEstimator(checkpoint, checkpoint.model(AutoModelForDepthEstimation), processor)


class DepthEstimator(ImageHandler):
    def forward_batch(self, items: Sequence[ImageItem]) -> "torch.Tensor":
        return copy_to_host(self.forward(items).predicted_depth)

    def read_batch(self, items: Sequence[ImageItem], output: "torch.Tensor") -> list[tuple["Depth", InputImage]]:
        return [(depth.squeeze(), item.image) for depth, item in zip(output.numpy(), items, strict=True)]

    def finish(self, raw: tuple["Depth", InputImage]) -> Outputs:
        depth, image = raw
        nearness = _to_nearness(depth, image, is_metric=_is_metric(self.model.config))
        return {
            "image": png(_to_colours(nearness), image.output_name("depth")),
            "depth": png(_to_grey(nearness), image.output_name("depth-16-bit")),
        }


def _is_metric(config: Any) -> bool:
    return config.model_type in _METRIC_MODELS or getattr(config, "depth_estimation_type", "") == "metric"


def _to_nearness(depth: "Depth", image: InputImage, *, is_metric: bool) -> "Depth":
    """Converts a depth map to nearness from 0 to 1 in the image's size; a flat map becomes 0."""
    import numpy as np
    from PIL import Image

    if not np.isfinite(depth).all():
        raise ModelFailed("the model's depth map is not finite", remedy="try another image or another model")
    enlarged = Image.fromarray(-depth if is_metric else depth).resize(image.size, Image.Resampling.BICUBIC)
    values = np.asarray(enlarged).clip(*((-depth).min(), (-depth).max()) if is_metric else (depth.min(), depth.max()))
    span = float(np.ptp(values))
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def _to_grey(nearness: "Depth") -> "Image":
    import numpy as np
    from PIL import Image

    return Image.fromarray((nearness * 65535).round().astype(np.uint16))


def _to_colours(nearness: "Depth") -> "Image":
    import numpy as np
    from PIL import Image

    stops = np.linspace(0, 255, len(_COLOURS))
    table = np.stack([np.interp(np.arange(256), stops, channel) for channel in zip(*_COLOURS, strict=True)], axis=-1)
    return Image.fromarray(table.round().astype(np.uint8)[(nearness * 255).round().astype(np.uint8)])
