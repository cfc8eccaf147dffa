"""Maps of depth, and of the surfaces that the depth implies."""

from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.map_maker import Drawer
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import move_to_device

if TYPE_CHECKING:
    from PIL.Image import Image

_FLATTEST = 6.28
"""What faces the viewer, in steps of depth per pixel: how steep a slope must be to count as one."""
_FAR = 0.4
"""Below this depth there is background, which faces the viewer."""


def depth_control(model_id: str, device: str) -> Handler:
    """Any estimator of depth of transformers."""
    return Depth(*_loaded(model_id, device))


def normal_control(model_id: str, device: str) -> Handler:
    """The same, whose depth is turned into surfaces: ControlNet's own way for its first model of normals."""
    return Normals(*_loaded(model_id, device))


def _loaded(model_id: str, device: str) -> tuple[Checkpoint, Any, Any]:
    from transformers import AutoImageProcessor, AutoModelForDepthEstimation

    checkpoint = Checkpoint.fetch(model_id, device)
    return checkpoint, checkpoint.model(AutoModelForDepthEstimation), checkpoint.processor(AutoImageProcessor)


class Depth(Drawer):
    """Near is white, far is black."""

    suffix = "depth"

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self._processor = processor
        self._is_distance = getattr(model.config, "depth_estimation_type", "relative") == "metric"

    def look(self, picture: "Image") -> Any:
        """Nearness, 0 to 1, as large as the picture."""
        batch = self._processor(images=picture, return_tensors="pt")
        outputs = self.model(**move_to_device(batch, self.model))
        outputs.predicted_depth = outputs.predicted_depth.float()
        sizes = [(picture.height, picture.width)]
        found = self._processor.post_process_depth_estimation(outputs, target_sizes=sizes)[0]["predicted_depth"]
        depth = found.reshape(sizes[0]).cpu().numpy()
        return _stretched(-depth if self._is_distance else depth)

    def draw(self, found: Any, picture: "Image") -> "Image":  # noqa: ARG002  # it is as large as the picture
        import numpy as np
        from PIL import Image

        return Image.fromarray((self.checked(found) * 255).round().astype(np.uint8)).convert("RGB")


class Normals(Depth):
    """Which way each surface looks, as a colour."""

    suffix = "normals"

    def draw(self, found: Any, picture: "Image") -> "Image":  # noqa: ARG002  # it is as large as the picture
        from PIL import Image

        return Image.fromarray(normals(self.checked(found)))


def normals(nearness: Any) -> Any:
    """Left red, right blue-green, up green, down purple, as ControlNet learned it; from nearness in 0 to 1."""
    import cv2
    import numpy as np

    depth = (nearness * 255).astype(np.float32)
    across, down = (cv2.Sobel(depth, cv2.CV_32F, x, 1 - x, ksize=3) for x in (1, 0))
    slopes = np.stack([across, down, np.full_like(across, _FLATTEST)], axis=2)
    slopes[nearness < _FAR, :2] = 0
    unit = slopes / np.linalg.norm(slopes, axis=2, keepdims=True)
    return (unit * 127.5 + 127.5).clip(0, 255).astype(np.uint8)


def _stretched(values: Any) -> Any:
    lowest, highest = float(values.min()), float(values.max())
    return (values - lowest) / (highest - lowest if highest != lowest else 1)
