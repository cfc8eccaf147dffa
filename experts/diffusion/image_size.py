"""How large a picture is worked on, and how large it comes out."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from experts.host.parameters import port_of
from services.common.errors import InvalidRequest

MOST_PIXELS = 2048 * 2048
_NARROWEST = 8
_USUAL_SIDE = 1024


class Size(NamedTuple):
    width: int
    height: int


class Canvas(NamedTuple):
    """What a pipeline can paint on."""

    side: int
    """Of the square it was trained on."""
    multiple: int
    """Width and height are multiples of it."""

    @classmethod
    def of(cls, pipeline: Any) -> "Canvas":
        painter = getattr(pipeline, "unet", None) or pipeline.transformer
        sample, factor = painter.config.get("sample_size"), pipeline.vae_scale_factor
        if isinstance(sample, list | tuple):
            sample = sample[0]
        patches = 1 if getattr(pipeline, "unet", None) else 2
        return cls(sample * factor if sample else _USUAL_SIDE, factor * patches)

    def above(self, size: Size) -> Size:
        """The smallest that it can paint and that holds a size."""
        return Size(*(math.ceil(edge / self.multiple) * self.multiple for edge in size))

    def like(self, size: Size, port: str) -> Size:
        """Shaped like a picture, and between a quarter of the area it was trained on and all of it.

        Raises:
            InvalidRequest: the picture is too narrow for that.
        """
        if max(size) > _NARROWEST * min(size):
            raise InvalidRequest(
                f"the picture has {size.width} x {size.height} pixels: too narrow",
                remedy=f"send one whose longer side is at most {_NARROWEST} times the shorter",
                port=port,
            )
        area, whole = size.width * size.height, self.side**2
        scale = math.sqrt(min(max(area, whole / 4), whole) / area)
        return Size(*(max(1, round(edge * scale / self.multiple)) * self.multiple for edge in size))


def wanted(parameters: Mapping[str, Any], usual: Size) -> Size | None:
    """The size asked for; nothing if none is.

    Raises:
        InvalidRequest: it is too large.
    """
    if not parameters.keys() & {"width", "height"}:
        return None
    size = Size(parameters.get("width", usual.width), parameters.get("height", usual.height))
    if size.width * size.height > MOST_PIXELS:
        raise InvalidRequest(
            f"{size.width} x {size.height} pixels are too many",
            remedy=f"ask for at most {MOST_PIXELS}, such as 2048 x 2048, and enlarge the result",
            port=port_of("width"),
        )
    return size
