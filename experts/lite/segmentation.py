"""Segmentation of an image's main subject from its background (OpenCV's GrabCut)."""

import math
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.host.isolation import isolated_single
from experts.host.media import derive_name, open_image, png

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels = NDArray[np.uint8]

_WORKING_SIDE = 400
_ITERATIONS = 4
_BORDER_SHARE = 0.04
_MIN_COMPONENT_SHARE = 0.1
_BINS = 8
_SUBJECT_SHARE_RANGE = (0.005, 0.97)
_THRESHOLD = 0.5
_DIM_FACTOR = 0.3
_MIN_SIDE = 8
_NO_SUBJECT = "No subject stands out from the background."


def image_segmentation(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return isolated_single(_segment, port="image")


def _segment(inputs: Inputs, parameters: Parameters) -> Outputs:
    """Runs in a worker process."""
    picture = open_image(inputs["image"])
    mask, score = segment_subject(picture)
    share = float((mask > 0).mean())
    is_distinct = _SUBJECT_SHARE_RANGE[0] <= share <= _SUBJECT_SHARE_RANGE[1] and score >= float(
        parameters.get("threshold", _THRESHOLD)
    )
    if not is_distinct:
        mask[:] = 0
    foreground_pixels = int((mask > 0).sum())
    segments = [{"label": "foreground", "score": round(score, 4), "area": foreground_pixels}] if is_distinct else []
    return {
        "segments": segments,
        "image": png(
            _dim_background(picture, mask) if is_distinct else picture, derive_name(inputs["image"], "segments", "png")
        ),
        "mask": png(_to_image(mask), derive_name(inputs["image"], "mask", "png")),
        "text": f"One subject, {share:.0%} of the picture." if is_distinct else _NO_SUBJECT,
    }


def segment_subject(picture: "Image") -> "tuple[Pixels, float]":
    """Returns a mask of 0 and 255 in the image's size, and its colour distance from the background, 0 to 1."""
    import cv2
    import numpy as np

    small = picture.copy()
    small.thumbnail((_WORKING_SIDE, _WORKING_SIDE))
    pixels = np.asarray(small)[:, :, ::-1].copy()
    if min(pixels.shape[:2]) < _MIN_SIDE:
        return np.zeros((picture.height, picture.width), np.uint8), 0.0
    guess = _make_initial_mask(pixels.shape[:2])
    cv2.setRNGSeed(0)
    cv2.grabCut(pixels, guess, None, np.zeros((1, 65)), np.zeros((1, 65)), _ITERATIONS, cv2.GC_INIT_WITH_MASK)
    inside = _remove_small_components(np.isin(guess, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8))
    enlarged = cv2.resize(inside * 255, picture.size, interpolation=cv2.INTER_LINEAR)
    return np.where(enlarged > 127, 255, 0).astype(np.uint8), _measure_contrast(pixels, inside)  # noqa: PLR2004  # half


def _make_initial_mask(shape: tuple[int, ...]) -> "Pixels":
    """Returns the initial mask: the border, except at the bottom, is background; the rest is probably the subject."""
    import cv2
    import numpy as np

    guess = np.full(shape, cv2.GC_PR_FGD, np.uint8)
    edge = max(2, round(_BORDER_SHARE * min(shape)))
    guess[-edge:] = cv2.GC_PR_BGD
    guess[:edge] = guess[:, :edge] = guess[:, -edge:] = cv2.GC_BGD
    return guess


def _remove_small_components(inside: Any) -> "Pixels":
    """Keeps the largest component and those of comparable size."""
    import cv2
    import numpy as np

    opened = cv2.morphologyEx(inside, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    count, components, stats, _ = cv2.connectedComponentsWithStats(opened)
    areas = stats[1:, cv2.CC_STAT_AREA]
    large = [component for component in range(1, count) if areas[component - 1] >= _MIN_COMPONENT_SHARE * areas.max()]
    return np.isin(components, large).astype(np.uint8)


def _measure_contrast(pixels: "Pixels", inside: "Pixels") -> float:
    """Returns the Hellinger distance between the colours of subject and background."""
    import cv2
    import numpy as np

    lab = cv2.cvtColor(pixels, cv2.COLOR_BGR2LAB)
    bins, ranges = [_BINS] * 3, [0.0, 256.0] * 3
    within, without = (cv2.calcHist([lab], [0, 1, 2], part, bins, ranges) for part in (inside, 1 - inside))
    if not within.sum() or not without.sum():
        return 0.0
    shared = float(np.sqrt(within / within.sum() * without / without.sum()).sum())
    return math.sqrt(max(0.0, 1 - shared))


def _dim_background(picture: "Image", mask: "Pixels") -> "Image":
    """Returns the image with a dimmed background."""
    from PIL import Image

    dark = picture.point(lambda value: int(value * _DIM_FACTOR))
    return Image.composite(picture, dark, _to_image(mask))


def _to_image(mask: "Pixels") -> "Image":
    from PIL import Image

    return Image.fromarray(mask)
