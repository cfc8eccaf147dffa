"""Maps of edges and lines by OpenCV, without weights; deterministic."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.map_handler import open_picture
from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.host.media import derive_name, png

if TYPE_CHECKING:
    from PIL.Image import Image

_CANNY_THRESHOLDS = (100, 200)
_FINE_BLUR, _COARSE_BLUR, _STROKE_CONTRAST = 0.5, 5.0, 16
"""Blur radii, and by how much the fine blur must be darker than the coarse blur to be a pen stroke."""
_MIN_LINE_SHARE = 0.04
"""Minimum length of a line, as a share of the picture's longer side."""
_SOFT_SCALES = (1.0, 2.0, 4.0)
_STRONG_PERCENTILE = 99.0
"""Percentile of gradients that is drawn in full white."""
_MIN_STRONG_GRADIENT = 16.0
"""Minimum gradient that is drawn in full white: smaller gradients are noise, even in a flat picture."""

Pixels = Any


def canny_control(_model_id: str, _device: str) -> Handler:
    """Returns a handler that draws thin edges."""
    return make_handler(detect_edges, "canny")


def scribble_control(_model_id: str, _device: str) -> Handler:
    """Returns a handler that draws strokes like those of a pen."""
    return make_handler(draw_strokes, "scribble")


def mlsd_control(_model_id: str, _device: str) -> Handler:
    """Returns a handler that draws straight lines."""
    return make_handler(draw_line_segments, "lines")


def make_handler(draw: "Callable[[Pixels], Pixels]", suffix: str) -> Handler:
    """Returns a handler that draws a map with a function of pixels."""
    import cv2  # noqa: F401  # imported here so that the first call does not wait

    def draw_map(inputs: Inputs, _parameters: Parameters) -> Outputs:
        return {
            "image": png(render_map(draw, open_picture(inputs["image"])), derive_name(inputs["image"], suffix, "png"))
        }

    return single(draw_map)


def render_map(draw: "Callable[[Pixels], Pixels]", picture: "Image") -> "Image":
    """Returns the RGB map that a function of pixels draws."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(draw(np.asarray(picture))).convert("RGB")


def detect_edges(pixels: Pixels) -> Pixels:
    """Detects edges with the thresholds of ControlNet's training pictures."""
    import cv2

    return cv2.Canny(pixels, *_CANNY_THRESHOLDS)


def draw_strokes(pixels: Pixels) -> Pixels:
    """Marks pixels with any colour darker than its surroundings, by a difference of blurs."""
    import cv2
    import numpy as np

    colours = pixels.astype(np.float32)
    darker = cv2.GaussianBlur(colours, (0, 0), _COARSE_BLUR) - cv2.GaussianBlur(colours, (0, 0), _FINE_BLUR)
    return np.where(darker.max(axis=2) > _STROKE_CONTRAST, 255, 0).astype(np.uint8)


def draw_line_segments(pixels: Pixels) -> Pixels:
    """Draws line segments (LSD) with a minimum length."""
    import cv2
    import numpy as np

    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    canvas = np.zeros_like(grey)
    segments = cv2.createLineSegmentDetector().detect(grey)[0] if min(grey.shape) > 1 else None
    for left, top, right, bottom in [] if segments is None else segments[:, 0]:
        if np.hypot(right - left, bottom - top) >= _MIN_LINE_SHARE * max(grey.shape):
            start, end = ((round(float(x)), round(float(y))) for x, y in ((left, top), (right, bottom)))
            cv2.line(canvas, start, end, 255, 1)
    return canvas


def draw_soft_edges(pixels: Pixels) -> Pixels:
    """Draws gradients of brightness and colour on several scales: strong ones white, faint ones grey."""
    import cv2
    import numpy as np

    colours = pixels.astype(np.float32)
    total = np.zeros(pixels.shape[:2], dtype=np.float32)
    for scale in _SOFT_SCALES:
        smooth = cv2.GaussianBlur(colours, (0, 0), scale)
        across, down = (cv2.Sobel(smooth, cv2.CV_32F, x, 1 - x, ksize=3) for x in (1, 0))
        total += scale * np.hypot(across, down).max(axis=2)
    strong = max(float(np.percentile(total, _STRONG_PERCENTILE)), _MIN_STRONG_GRADIENT * len(_SOFT_SCALES))
    return (np.clip(total / strong, 0, 1) * 255).round().astype(np.uint8)
