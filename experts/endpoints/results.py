"""Builds task outputs from the answers of endpoints, in the same format as local experts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media, Outputs
from experts.host.media import box, open_image, png, renamed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Mask = NDArray[np.bool_]

DIGITS = 4
VECTOR_DIGITS = 6
NO_ANSWER = "The text does not say."
_COLOURS = ("#ffd166", "#06d6a0", "#4cc9f0", "#ef476f", "#b892ff", "#f78c6b", "#9bf6a1", "#ff99c8")
_LINE_FRACTION = 300
"""Length of the longer image side divided by the line width."""


def labels(found: Iterable[tuple[str, float]], top_k: int | None = None) -> Outputs:
    """Returns labels with scores, best first."""
    ordered = sorted(found, key=lambda pair: -pair[1])[:top_k]
    written = [{"label": label, "score": round(score, DIGITS)} for label, score in ordered]
    return {"labels": written, "text": ordered[0][0]}


def entities(found: Iterable[Mapping[str, Any]], text: str) -> Outputs:
    """Returns entities in text order; each input has entity, score, start and end."""
    written = [
        {
            "entity": one["entity"],
            "text": text[one["start"] : one["end"]],
            "score": round(one["score"], DIGITS),
            "start": one["start"],
            "end": one["end"],
        }
        for one in sorted(found, key=lambda one: int(one["start"]))
    ]
    lines = [f"{one['text']}: {one['entity']}" for one in written]
    return {"entities": written, "text": "\n".join(lines) or "Nothing found."}


def answer(text: str, score: float, start: int, end: int) -> Outputs:
    """Returns an answer that is a span of the context."""
    details = {"answer": text, "score": round(score, DIGITS), "start": start, "end": end}
    return {"text": " ".join(text.split()) or NO_ANSWER, "details": details}


def similarity(scores: Sequence[float], sentences: Sequence[str]) -> Outputs:
    """Returns the similarity of each sentence, 0 to 1."""
    bounded = [round(min(max(score, 0.0), 1.0), DIGITS) for score in scores]
    closest = max(range(len(bounded)), key=bounded.__getitem__)
    return {"scores": bounded, "text": f"{sentences[closest]} ({bounded[closest]})"}


def embedding(vector: Iterable[float]) -> Outputs:
    return {"embedding": [round(float(value), VECTOR_DIGITS) for value in vector]}


def objects(found: Sequence[tuple[str, float, Sequence[float]]], media: Media) -> Outputs:
    """Returns labels, scores and boxes, and the image with the boxes drawn on it."""
    ordered = sorted(found, key=lambda one: -one[1])
    return {
        "objects": [
            {"label": label, "score": round(score, DIGITS), "box": box(corners)} for label, score, corners in ordered
        ],
        "image": png(_boxed(open_image(media), ordered), renamed(media, "objects", "png")),
        "text": _counted([label for label, _, _ in ordered]),
    }


def segments(found: "Sequence[tuple[str, float, Image]]", media: Media) -> Outputs:
    """Returns labels, scores and areas, the mask image, and the image with the masks overlaid."""
    import numpy as np

    picture = open_image(media)
    masks = [np.asarray(mask.convert("L").resize(picture.size)) > 127 for _, _, mask in found]  # noqa: PLR2004  # half of white
    written = [
        {"label": label, "score": round(score, DIGITS), "area": int(mask.sum())}
        for (label, score, _), mask in zip(found, masks, strict=True)
    ]
    return {
        "segments": written,
        "image": png(_overlaid(picture, masks), renamed(media, "segments", "png")),
        "mask": png(_levels(picture, masks), renamed(media, "mask", "png")),
        "text": _counted([label for label, _, _ in found]),
    }


def _counted(names: Sequence[str]) -> str:
    counts = Counter(names).most_common()
    return ", ".join(f"{count} {name}" for name, count in counts) or "Nothing found."


def _boxed(picture: "Image", found: Sequence[tuple[str, float, Sequence[float]]]) -> "Image":
    from PIL import ImageDraw, ImageFont

    draw, line = ImageDraw.Draw(picture), max(2, round(max(picture.size) / _LINE_FRACTION))
    font = ImageFont.load_default(max(12, 5 * line))
    colours = {label: _COLOURS[at % len(_COLOURS)] for at, label in enumerate(dict.fromkeys(one[0] for one in found))}
    for label, score, corners in found:
        left, top, right, bottom = corners
        sides = (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
        corner, caption = (sides[0] + line, sides[1] + line), f"{label} {score:.2f}"
        draw.rectangle(sides, outline=colours[label], width=line)
        draw.rectangle(draw.textbbox(corner, caption, font=font), fill=colours[label])
        draw.text(corner, caption, fill="black", font=font)
    return picture


def _overlaid(picture: "Image", masks: "Sequence[Mask]") -> "Image":
    import numpy as np
    from PIL import Image, ImageColor

    pixels = np.asarray(picture).astype(np.float32)
    for at, mask in enumerate(masks):
        colour = np.array(ImageColor.getrgb(_COLOURS[at % len(_COLOURS)]), dtype=np.float32)
        pixels[mask] = (pixels[mask] + colour) / 2
    return Image.fromarray(pixels.round().astype(np.uint8))


def _levels(picture: "Image", masks: "Sequence[Mask]") -> "Image":
    """Returns the mask image: black for no segment, and one grey level per segment, in equal steps up to white."""
    import numpy as np
    from PIL import Image

    grey = np.zeros((picture.height, picture.width), dtype=np.uint8)
    for at, mask in enumerate(masks, start=1):
        grey[mask] = round(255 * at / len(masks))
    return Image.fromarray(grey)
