"""Draws detections, segments and poses on an image, and counts labels as text."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Levels = NDArray[np.uint8]

_PALETTE = (
    "#ffb000 #00c2a8 #ff5d5d #4da3ff #b57bff #8bd450 #ff8a3c #f06fc4 #2fd0e6 #d6d64a #9c8cff #66d9a0".split()  # noqa: SIM905  # more readable than a list
)
_MASK_OPACITY = 120
"""Opacity of a mask's colour, of 255."""
_IRREGULAR = {"person": "people", "man": "men", "woman": "women", "child": "children", "sheep": "sheep"}
_IRREGULAR |= {"mouse": "mice", "knife": "knives", "fish": "fish", "skis": "skis", "scissors": "scissors"}
_SIBILANTS = ("s", "x", "z", "ch", "sh")


@dataclass(frozen=True)
class Detection:
    """Detected object; its box is in pixels of the original image."""

    label: str
    score: float
    box: Sequence[float]


def palette_colour(index: int) -> str:
    """Returns a colour of the palette, which repeats."""
    return _PALETTE[index % len(_PALETTE)]


def draw_boxes(image: "Image", detections: Sequence[Detection]) -> "Image":
    """Draws labelled boxes on a copy of the image, in one colour per label."""
    copy, draw, width, font = _canvas(image)
    labels = list(dict.fromkeys(detection.label for detection in detections))
    for detection in reversed(detections):  # the best on top
        colour = palette_colour(labels.index(detection.label))
        draw.rectangle(tuple(detection.box), outline=colour, width=width)
        _draw_label(
            draw,
            (detection.box[0] + width, detection.box[1] + width),
            f"{detection.label} {detection.score:.2f}",
            colour,
            font,
        )
    return copy


def draw_segments(image: "Image", levels: "Levels", labels: Sequence[str] = ()) -> "Image":
    """Colours the segments on a copy of the image.

    Args:
        image: the image.
        levels: a map of the image's size; 0 is no segment, n the nth segment.
        labels: names of the segments, in order.
    """
    from PIL import Image

    map_ = Image.fromarray(levels)
    colours = map_.copy()
    colours.putpalette(_palette())
    blended = image.copy()
    blended.paste(colours.convert("RGB"), mask=map_.point(lambda level: _MASK_OPACITY if level else 0))
    copy, draw, _, font = _canvas(blended)
    for index, label in enumerate(labels, 1):
        if (position := _label_position(levels, index)) is not None:
            _draw_label(draw, position, label, palette_colour(index - 1), font)
    return copy


def draw_poses(
    image: "Image", poses: Iterable[Sequence[tuple[float, float] | None]], bones: Iterable[tuple[int, int]]
) -> "Image":
    """Draws joints, and bones between two present joints, on a copy of the image."""
    copy, draw, width, _ = _canvas(image)
    pairs = list(bones)
    for index, points in enumerate(poses):
        colour = palette_colour(index)
        for start, end in pairs:
            if (a := points[start]) and (b := points[end]):
                draw.line((a, b), fill=colour, width=width)
        for point in filter(None, points):
            x, y = point
            draw.ellipse((x - width, y - width, x + width, y + width), fill=colour, outline="black")
    return copy


def count_labels(labels: Iterable[str]) -> str:
    """Counts labels as text, most frequent first: "2 cats, 1 dog"; "nothing" if there are none."""
    counts = Counter(labels).most_common()
    return ", ".join(f"{count} {label if count == 1 else pluralize(label)}" for label, count in counts) or "nothing"


def pluralize(label: str) -> str:
    """Returns the plural of an English noun phrase."""
    head, space, word = label.rpartition(" ")
    if word in _IRREGULAR:
        return head + space + _IRREGULAR[word]
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return label[:-1] + "ies"
    return label + ("es" if word.endswith(_SIBILANTS) else "s")


def _canvas(image: "Image") -> tuple["Image", Any, int, Any]:
    """Returns a copy of an image, its drawing interface, and line width and font in proportion to its size."""
    from PIL import ImageDraw, ImageFont

    copy = image.copy()
    width = max(1, round(max(image.size) / 300))
    return copy, ImageDraw.Draw(copy), width, ImageFont.load_default(max(12, 5 * width))


def _draw_label(draw: Any, corner: tuple[float, float], text: str, colour: str, font: Any) -> None:
    draw.rectangle(draw.textbbox(corner, text, font=font), fill=colour)
    draw.text(corner, text, fill="black", font=font)


def _palette() -> list[int]:
    from PIL import ImageColor

    colours = [(0, 0, 0), *(ImageColor.getrgb(palette_colour(index))[:3] for index in range(255))]
    return [value for rgb in colours for value in rgb]


def _label_position(levels: "Levels", index: int) -> tuple[float, float] | None:
    """Returns the point of a segment nearest to its centroid; None if the segment is empty."""
    import numpy as np

    rows, columns = np.nonzero(levels == index)
    if not rows.size:
        return None
    nearest = np.hypot(rows - rows.mean(), columns - columns.mean()).argmin()
    return float(columns[nearest]), float(rows[nearest])
