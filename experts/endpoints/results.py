"""Builds task outputs from the answers of endpoints, in the same format as local experts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import NO_ANSWER, Media, Outputs
from experts.host.media import box_to_json, derive_name, open_image, png

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Mask = NDArray[np.bool_]

DIGITS = 4
VECTOR_DIGITS = 6
_COLOURS = ("#ffd166", "#06d6a0", "#4cc9f0", "#ef476f", "#b892ff", "#f78c6b", "#9bf6a1", "#ff99c8")
_LINE_FRACTION = 300
"""Length of the longer image side divided by the line width."""


def build_labels(scored: Iterable[tuple[str, float]], top_k: int | None = None) -> Outputs:
    """Returns labels with scores, best first."""
    ordered = sorted(scored, key=lambda pair: -pair[1])[:top_k]
    labels = [{"label": label, "score": round(score, DIGITS)} for label, score in ordered]
    return {"labels": labels, "text": ordered[0][0]}


def build_entities(entities: Iterable[Mapping[str, Any]], text: str) -> Outputs:
    """Returns entities in text order; each input has entity, score, start and end."""
    outputs = [
        {
            "entity": entity["entity"],
            "text": text[entity["start"] : entity["end"]],
            "score": round(entity["score"], DIGITS),
            "start": entity["start"],
            "end": entity["end"],
        }
        for entity in sorted(entities, key=lambda entity: int(entity["start"]))
    ]
    lines = [f"{entity['text']}: {entity['entity']}" for entity in outputs]
    return {"entities": outputs, "text": "\n".join(lines) or "Nothing found."}


def build_answer(text: str, score: float, start: int, end: int) -> Outputs:
    """Returns an answer that is a span of the context."""
    details = {"answer": text, "score": round(score, DIGITS), "start": start, "end": end}
    return {"text": " ".join(text.split()) or NO_ANSWER, "details": details}


def build_similarity(scores: Sequence[float], sentences: Sequence[str]) -> Outputs:
    """Returns the similarity of each sentence, 0 to 1."""
    bounded = [round(min(max(score, 0.0), 1.0), DIGITS) for score in scores]
    closest = max(range(len(bounded)), key=bounded.__getitem__)
    return {"scores": bounded, "text": f"{sentences[closest]} ({bounded[closest]})"}


def build_embedding(vector: Iterable[float]) -> Outputs:
    return {"embedding": [round(float(value), VECTOR_DIGITS) for value in vector]}


def build_objects(scored: Sequence[tuple[str, float, Sequence[float]]], media: Media) -> Outputs:
    """Returns labels, scores and boxes, and the image with the boxes drawn on it."""
    ordered = sorted(scored, key=lambda scored_box: -scored_box[1])
    return {
        "objects": [
            {"label": label, "score": round(score, DIGITS), "box": box_to_json(corners)}
            for label, score, corners in ordered
        ],
        "image": png(_draw_boxes(open_image(media), ordered), derive_name(media, "objects", "png")),
        "text": _count_names([label for label, _, _ in ordered]),
    }


def build_segments(scored: "Sequence[tuple[str, float, Image]]", media: Media) -> Outputs:
    """Returns labels, scores and areas, the mask image, and the image with the masks overlaid."""
    import numpy as np

    picture = open_image(media)
    masks = [np.asarray(mask.convert("L").resize(picture.size)) > 127 for _, _, mask in scored]  # noqa: PLR2004  # half of white
    outputs = [
        {"label": label, "score": round(score, DIGITS), "area": int(mask.sum())}
        for (label, score, _), mask in zip(scored, masks, strict=True)
    ]
    return {
        "segments": outputs,
        "image": png(_overlay_masks(picture, masks), derive_name(media, "segments", "png")),
        "mask": png(_draw_mask_levels(picture, masks), derive_name(media, "mask", "png")),
        "text": _count_names([label for label, _, _ in scored]),
    }


def _count_names(names: Sequence[str]) -> str:
    counts = Counter(names).most_common()
    return ", ".join(f"{count} {name}" for name, count in counts) or "Nothing found."


def _draw_boxes(picture: "Image", scored: Sequence[tuple[str, float, Sequence[float]]]) -> "Image":
    from PIL import ImageDraw, ImageFont

    draw, line = ImageDraw.Draw(picture), max(2, round(max(picture.size) / _LINE_FRACTION))
    font = ImageFont.load_default(max(12, 5 * line))
    colours = {
        label: _COLOURS[index % len(_COLOURS)]
        for index, label in enumerate(dict.fromkeys(scored_box[0] for scored_box in scored))
    }
    for label, score, corners in scored:
        left, top, right, bottom = corners
        sides = (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
        corner, caption = (sides[0] + line, sides[1] + line), f"{label} {score:.2f}"
        draw.rectangle(sides, outline=colours[label], width=line)
        draw.rectangle(draw.textbbox(corner, caption, font=font), fill=colours[label])
        draw.text(corner, caption, fill="black", font=font)
    return picture


def _overlay_masks(picture: "Image", masks: "Sequence[Mask]") -> "Image":
    import numpy as np
    from PIL import Image, ImageColor

    pixels = np.asarray(picture).astype(np.float32)
    for index, mask in enumerate(masks):
        colour = np.array(ImageColor.getrgb(_COLOURS[index % len(_COLOURS)]), dtype=np.float32)
        pixels[mask] = (pixels[mask] + colour) / 2
    return Image.fromarray(pixels.round().astype(np.uint8))


def _draw_mask_levels(picture: "Image", masks: "Sequence[Mask]") -> "Image":
    """Returns the mask image: black for no segment, and one grey level per segment, in equal steps up to white."""
    import numpy as np
    from PIL import Image

    grey = np.zeros((picture.height, picture.width), dtype=np.uint8)
    for level, mask in enumerate(masks, start=1):
        grey[mask] = round(255 * level / len(masks))
    return Image.fromarray(grey)
