"""How far away things are, as a picture in which near is bright."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Outputs
from experts.host.media import png
from experts.torch_host.checkpoint import Checkpoint
from experts.vision.image_batches import Scene, Seen, Viewer
from services.common.errors import ModelFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Depth = NDArray[np.float32]

_DISTANCES = {"zoedepth", "glpn", "prompt_depth_anything", "depth_pro"}
"""These give metres; most others give nearness."""
_COLOURS = ((0, 0, 4), (66, 10, 104), (147, 38, 103), (221, 81, 58), (252, 165, 10), (252, 255, 164))
"""From far to near: darker and colder to brighter and warmer, readable in grey, too."""


def depth_estimation(model_id: str, device: str) -> Handler:
    """Any model for it; those that pad the picture are told not to."""
    from transformers import AutoImageProcessor, AutoModelForDepthEstimation

    checkpoint = Checkpoint.fetch(model_id, device)
    processor = checkpoint.processor(AutoImageProcessor)
    if getattr(processor, "do_pad", None):
        processor.do_pad = False
    return Depths(checkpoint, checkpoint.model(AutoModelForDepthEstimation), processor)


class Depths(Viewer):
    def look(self, items: Sequence[Seen]) -> list[tuple["Depth", Scene]]:
        depths = self.computed(items).predicted_depth.float().cpu().numpy()
        return [(depth.squeeze(), item.scene) for depth, item in zip(depths, items, strict=True)]

    def finish(self, raw: tuple["Depth", Scene]) -> Outputs:
        depth, scene = raw
        near = _near(depth, scene, distances=_gives_distances(self.model.config))
        return {
            "image": png(_coloured(near), scene.named("depth")),
            "depth": png(_grey(near), scene.named("depth-16-bit")),
        }


def _gives_distances(config: Any) -> bool:
    return config.model_type in _DISTANCES or getattr(config, "depth_estimation_type", "") == "metric"


def _near(depth: "Depth", scene: Scene, *, distances: bool) -> "Depth":
    """Nearness from 0 to 1 in the picture's size; a picture that is flat is 0 all over."""
    import numpy as np
    from PIL import Image

    if not np.isfinite(depth).all():
        raise ModelFailed("the model gave a depth that is not finite", remedy="try another picture or another model")
    enlarged = Image.fromarray(-depth if distances else depth).resize(scene.size, Image.Resampling.BICUBIC)
    values = np.asarray(enlarged).clip(*((-depth).min(), (-depth).max()) if distances else (depth.min(), depth.max()))
    span = float(np.ptp(values))
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def _grey(near: "Depth") -> "Image":
    import numpy as np
    from PIL import Image

    return Image.fromarray((near * 65535).round().astype(np.uint16))


def _coloured(near: "Depth") -> "Image":
    import numpy as np
    from PIL import Image

    stops = np.linspace(0, 255, len(_COLOURS))
    table = np.stack([np.interp(np.arange(256), stops, channel) for channel in zip(*_COLOURS, strict=True)], axis=-1)
    return Image.fromarray(table.round().astype(np.uint8)[(near * 255).round().astype(np.uint8)])
