"""What was found, drawn on the picture it was found in, and counted in words."""

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
    "#ffb000 #00c2a8 #ff5d5d #4da3ff #b57bff #8bd450 #ff8a3c #f06fc4 #2fd0e6 #d6d64a #9c8cff #66d9a0".split()  # noqa: SIM905  # a row of colours
)
_VEIL = 120
"""How much of 255 a mask covers what is below it."""
_IRREGULAR = {"person": "people", "man": "men", "woman": "women", "child": "children", "sheep": "sheep"}
_IRREGULAR |= {"mouse": "mice", "knife": "knives", "fish": "fish", "skis": "skis", "scissors": "scissors"}
_HISSING = ("s", "x", "z", "ch", "sh")


@dataclass(frozen=True)
class Found:
    """A thing in a picture, its box in the picture's own pixels."""

    label: str
    score: float
    box: Sequence[float]


def colour(index: int) -> str:
    return _PALETTE[index % len(_PALETTE)]


def boxed(picture: "Image", found: Sequence[Found]) -> "Image":
    """The boxes with their labels; each label has its colour."""
    marked, draw, line, font = _canvas(picture)
    labels = list(dict.fromkeys(one.label for one in found))
    for one in reversed(found):  # the best on top
        paint = colour(labels.index(one.label))
        draw.rectangle(tuple(one.box), outline=paint, width=line)
        _tag(draw, (one.box[0] + line, one.box[1] + line), f"{one.label} {one.score:.2f}", paint, font)
    return marked


def overlaid(picture: "Image", levels: "Levels", labels: Sequence[str] = ()) -> "Image":
    """Segments veiled in colour. In the map, of the picture's size, 0 is none and n the nth segment."""
    from PIL import Image

    map_ = Image.fromarray(levels)
    veil = map_.copy()
    veil.putpalette(_palette())
    marked = picture.copy()
    marked.paste(veil.convert("RGB"), mask=map_.point(lambda level: _VEIL if level else 0))
    marked, draw, _, font = _canvas(marked)
    for index, label in enumerate(labels, 1):
        if (at := _middle(levels, index)) is not None:
            _tag(draw, at, label, colour(index - 1), font)
    return marked


def skeletons(
    picture: "Image", poses: Iterable[Sequence[tuple[float, float] | None]], bones: Iterable[tuple[int, int]]
) -> "Image":
    """Points, and the bones between those that are both there."""
    marked, draw, line, _ = _canvas(picture)
    joined = list(bones)
    for index, points in enumerate(poses):
        paint = colour(index)
        for one, other in joined:
            if (a := points[one]) and (b := points[other]):
                draw.line((a, b), fill=paint, width=line)
        for point in filter(None, points):
            x, y = point
            draw.ellipse((x - line, y - line, x + line, y + line), fill=paint, outline="black")
    return marked


def counted(labels: Iterable[str]) -> str:
    """How many of what: "2 cats, 1 dog"; the most frequent first."""
    counts = Counter(labels).most_common()
    return ", ".join(f"{count} {label if count == 1 else plural(label)}" for label, count in counts) or "nothing"


def plural(label: str) -> str:
    """Of an English word."""
    head, space, word = label.rpartition(" ")
    if word in _IRREGULAR:
        return head + space + _IRREGULAR[word]
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return label[:-1] + "ies"
    return label + ("es" if word.endswith(_HISSING) else "s")


def _canvas(picture: "Image") -> tuple["Image", Any, int, Any]:
    """A copy, and what to draw on it with, as thick and large as it needs."""
    from PIL import ImageDraw, ImageFont

    marked = picture.copy()
    line = max(1, round(max(picture.size) / 300))
    return marked, ImageDraw.Draw(marked), line, ImageFont.load_default(max(12, 5 * line))


def _tag(draw: Any, corner: tuple[float, float], text: str, paint: str, font: Any) -> None:
    draw.rectangle(draw.textbbox(corner, text, font=font), fill=paint)
    draw.text(corner, text, fill="black", font=font)


def _palette() -> list[int]:
    from PIL import ImageColor

    colours = [(0, 0, 0), *(ImageColor.getrgb(colour(index))[:3] for index in range(255))]
    return [value for rgb in colours for value in rgb]


def _middle(levels: "Levels", index: int) -> tuple[float, float] | None:
    """A point of the segment near its middle."""
    import numpy as np

    rows, columns = np.nonzero(levels == index)
    if not rows.size:
        return None
    nearest = np.hypot(rows - rows.mean(), columns - columns.mean()).argmin()
    return float(columns[nearest]), float(rows[nearest])
