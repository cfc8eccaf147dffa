"""Depth maps, and normal maps computed from depth."""

from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.map_handler import MapHandler
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import move_to_device

if TYPE_CHECKING:
    from PIL.Image import Image

_FLAT_COMPONENT = 6.28
"""Component towards the viewer, in depth steps per pixel; smaller slopes look flat."""
_BACKGROUND_BELOW = 0.4
"""Nearness below which a pixel is background, which faces the viewer."""


def depth_control(model_id: str, device: str) -> Handler:
    """Loads any depth estimation model of transformers."""
    return DepthMap(*_load(model_id, device))


def normal_control(model_id: str, device: str) -> Handler:
    """Loads a depth estimation model for normal maps, computed as for ControlNet's first model of normals."""
    return NormalMap(*_load(model_id, device))


def _load(model_id: str, device: str) -> tuple[Checkpoint, Any, Any]:
    from transformers import AutoImageProcessor, AutoModelForDepthEstimation

    checkpoint = Checkpoint.fetch(model_id, device)
    return checkpoint, checkpoint.model(AutoModelForDepthEstimation), checkpoint.processor(AutoImageProcessor)


class DepthMap(MapHandler):
    """Draws depth: near is white, far is black."""

    suffix = "depth"

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._processor = processor
        self._is_distance = getattr(model.config, "depth_estimation_type", "relative") == "metric"

    def predict(self, picture: "Image") -> Any:
        """Returns the nearness of each pixel, from 0 to 1."""
        batch = self._processor(images=picture, return_tensors="pt")
        outputs = self.model(**move_to_device(batch, self.model))
        outputs.predicted_depth = outputs.predicted_depth.float()
        sizes = [(picture.height, picture.width)]
        predicted = self._processor.post_process_depth_estimation(outputs, target_sizes=sizes)[0]["predicted_depth"]
        depth = predicted.reshape(sizes[0]).cpu().numpy()
        return _normalize(-depth if self._is_distance else depth)

    def draw(self, prediction: Any, picture: "Image") -> "Image":  # noqa: ARG002  # the prediction has the picture's size
        import numpy as np
        from PIL import Image

        return Image.fromarray((self.check_finite(prediction) * 255).round().astype(np.uint8)).convert("RGB")


class NormalMap(DepthMap):
    """Draws the direction of each surface as a colour."""

    suffix = "normals"

    def draw(self, prediction: Any, picture: "Image") -> "Image":  # noqa: ARG002  # the prediction has the picture's size
        from PIL import Image

        return Image.fromarray(compute_normals(self.check_finite(prediction)))


def compute_normals(nearness: Any) -> Any:
    """Returns normals in ControlNet's colours (left red, right blue-green, up green, down purple); input is 0 to 1."""
    import cv2
    import numpy as np

    depth = (nearness * 255).astype(np.float32)
    across, down = (cv2.Sobel(depth, cv2.CV_32F, x, 1 - x, ksize=3) for x in (1, 0))
    slopes = np.stack([across, down, np.full_like(across, _FLAT_COMPONENT)], axis=2)
    slopes[nearness < _BACKGROUND_BELOW, :2] = 0
    unit = slopes / np.linalg.norm(slopes, axis=2, keepdims=True)
    return (unit * 127.5 + 127.5).clip(0, 255).astype(np.uint8)


def _normalize(values: Any) -> Any:
    lowest, highest = float(values.min()), float(values.max())
    return (values - lowest) / (highest - lowest if highest != lowest else 1)
