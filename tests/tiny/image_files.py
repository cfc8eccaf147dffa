"""Images for training and tests, and image processors saved in the format of the Hub."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = ("red", "green", "blue")
LEFT, RIGHT, LARGE = (4, 16, 28, 48), (36, 16, 60, 48), (8, 8, 56, 56)
"""Boxes of a square in a picture of 64 x 64 pixels."""


def solid_image(colour: str, size: tuple[int, int] = (64, 64)) -> "Image":
    from PIL import Image

    return Image.new("RGB", size, colour)


def square_image(colour: str, box: tuple[int, int, int, int], size: tuple[int, int] = (64, 64)) -> "Image":
    """Returns a square on white; the box is in 64ths of the picture."""
    from PIL import Image

    picture = Image.new("RGB", (64, 64), "white")
    picture.paste(colour, box)
    return picture.resize(size, Image.Resampling.NEAREST)


def to_media(picture: "Image", name: str = "picture.png") -> Media:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", name)


def to_image(media: Media) -> "Image":
    from PIL import Image

    return Image.open(io.BytesIO(media.content))


def save_processor(folder: Path, kind: str, **values: Any) -> Any:
    """Saves an image processor under the class name of repositories, and returns it."""
    from transformers import AutoImageProcessor

    (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": kind, **values}))
    return AutoImageProcessor.from_pretrained(folder)


def preprocess(processor: Any, *pictures: "Image") -> Any:
    return processor(images=list(pictures), return_tensors="pt")["pixel_values"]
