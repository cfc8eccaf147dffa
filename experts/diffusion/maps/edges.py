"""Maps of edges and lines by OpenCV: no weights, the same result every time."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.map_maker import opened
from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.host.media import png, renamed

if TYPE_CHECKING:
    from PIL.Image import Image

_CANNY = (100, 200)
_FINE, _COARSE, _DARKER = 0.5, 5.0, 16
"""A pen stroke is where the picture, slightly blurred, is that much darker than around."""
_SHORTEST_LINE = 0.04
"""Of the picture's longer side."""
_SOFT_SCALES = (1.0, 2.0, 4.0)
_STRONG = 99.0
"""The percentile of steps that is drawn in full white."""
_FAINTEST = 16.0
"""Steps of less than this are noise, however flat the rest is."""

Pixels = Any


def canny_control(_model_id: str, _device: str) -> Handler:
    """Thin edges, white on black."""
    return drawer(canny, "canny")


def scribble_control(_model_id: str, _device: str) -> Handler:
    """Strokes like those of a pen."""
    return drawer(scribble, "scribble")


def mlsd_control(_model_id: str, _device: str) -> Handler:
    """Straight lines."""
    return drawer(straight_lines, "lines")


def drawer(draw: "Callable[[Pixels], Pixels]", suffix: str) -> Handler:
    """A function of pixels as a Handler."""
    import cv2  # noqa: F401  # so that the first call does not wait for it

    def drawn(inputs: Inputs, _parameters: Parameters) -> Outputs:
        return {"image": png(white_on_black(draw, opened(inputs["image"])), renamed(inputs["image"], suffix, "png"))}

    return single(drawn)


def white_on_black(draw: "Callable[[Pixels], Pixels]", picture: "Image") -> "Image":
    """What a function of pixels draws, in RGB."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(draw(np.asarray(picture))).convert("RGB")


def canny(pixels: Pixels) -> Pixels:
    """At the thresholds that ControlNet's own pictures were made with."""
    import cv2

    return cv2.Canny(pixels, *_CANNY)


def scribble(pixels: Pixels) -> Pixels:
    """Where any colour is darker than its surroundings: a difference of blurs."""
    import cv2
    import numpy as np

    colours = pixels.astype(np.float32)
    darker = cv2.GaussianBlur(colours, (0, 0), _COARSE) - cv2.GaussianBlur(colours, (0, 0), _FINE)
    return np.where(darker.max(axis=2) > _DARKER, 255, 0).astype(np.uint8)


def straight_lines(pixels: Pixels) -> Pixels:
    """Line segments (LSD) of some length."""
    import cv2
    import numpy as np

    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    canvas = np.zeros_like(grey)
    found = cv2.createLineSegmentDetector().detect(grey)[0] if min(grey.shape) > 1 else None
    for left, top, right, bottom in [] if found is None else found[:, 0]:
        if np.hypot(right - left, bottom - top) >= _SHORTEST_LINE * max(grey.shape):
            start, end = ((round(float(x)), round(float(y))) for x, y in ((left, top), (right, bottom)))
            cv2.line(canvas, start, end, 255, 1)
    return canvas


def soft_edges(pixels: Pixels) -> Pixels:
    """Steps of brightness or colour on several scales, the strong ones white, the faint ones grey."""
    import cv2
    import numpy as np

    colours = pixels.astype(np.float32)
    total = np.zeros(pixels.shape[:2], dtype=np.float32)
    for scale in _SOFT_SCALES:
        smooth = cv2.GaussianBlur(colours, (0, 0), scale)
        across, down = (cv2.Sobel(smooth, cv2.CV_32F, x, 1 - x, ksize=3) for x in (1, 0))
        total += scale * np.hypot(across, down).max(axis=2)
    strong = max(float(np.percentile(total, _STRONG)), _FAINTEST * len(_SOFT_SCALES))
    return (np.clip(total / strong, 0, 1) * 255).round().astype(np.uint8)
