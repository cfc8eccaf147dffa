"""Picture sizes: what a model can process, and what the caller requests."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from experts.host.input_validation import parameter_port
from services.common.errors import InvalidRequest

MAX_PIXELS = 2048 * 2048
_MAX_ASPECT_RATIO = 8
_DEFAULT_SIDE = 1024


class Size(NamedTuple):
    width: int
    height: int


class ModelResolution(NamedTuple):
    """Resolution that a pipeline was trained on, and the sizes that it accepts."""

    side: int
    """Side of the training pictures, in pixels."""
    multiple: int
    """Width and height are multiples of this."""

    @classmethod
    def from_pipeline(cls, pipeline: Any) -> "ModelResolution":
        denoiser = getattr(pipeline, "unet", None) or pipeline.transformer
        sample, factor = denoiser.config.get("sample_size"), pipeline.vae_scale_factor
        if isinstance(sample, list | tuple):
            sample = sample[0]
        patches = 1 if getattr(pipeline, "unet", None) else 2
        return cls(sample * factor if sample else _DEFAULT_SIDE, factor * patches)

    def round_up(self, size: Size) -> Size:
        """Returns the smallest accepted size that contains the given size."""
        return Size(*(math.ceil(edge / self.multiple) * self.multiple for edge in size))

    def fit(self, size: Size, port: str) -> Size:
        """Returns an accepted size with the picture's aspect ratio, and 1/4 to 1 of the area of the training pictures.

        Raises:
            InvalidRequest: the picture is too narrow.
        """
        if max(size) > _MAX_ASPECT_RATIO * min(size):
            raise InvalidRequest(
                f"the picture has {size.width} x {size.height} pixels: too narrow",
                remedy=f"send a picture whose longer side is at most {_MAX_ASPECT_RATIO} times the shorter side",
                port=port,
            )
        area, full_area = size.width * size.height, self.side**2
        scale = math.sqrt(min(max(area, full_area / 4), full_area) / area)
        return Size(*(max(1, round(edge * scale / self.multiple)) * self.multiple for edge in size))


def read_size(parameters: Mapping[str, Any], default: Size) -> Size | None:
    """Returns the requested size, or None if neither width nor height is given.

    Raises:
        InvalidRequest: the size has too many pixels.
    """
    if not parameters.keys() & {"width", "height"}:
        return None
    size = Size(parameters.get("width", default.width), parameters.get("height", default.height))
    if size.width * size.height > MAX_PIXELS:
        raise InvalidRequest(
            f"{size.width} x {size.height} pixels are too many",
            remedy=f"request at most {MAX_PIXELS} pixels, such as 2048 x 2048, and enlarge the result",
            port=parameter_port("width"),
        )
    return size
