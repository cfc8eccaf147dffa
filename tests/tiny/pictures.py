"""Pictures that tiny models are taught with, and how a processor is saved as the Hub has it."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = ("red", "green", "blue")
LEFT, RIGHT, LARGE = (4, 16, 28, 48), (36, 16, 60, 48), (8, 8, 56, 56)
"""Where a square stands in a picture of 64 x 64."""


def plain(colour: str, size: tuple[int, int] = (64, 64)) -> "Image":
    from PIL import Image

    return Image.new("RGB", size, colour)


def square(colour: str, box: tuple[int, int, int, int], size: tuple[int, int] = (64, 64)) -> "Image":
    """A square on white; the box is in 64ths of the picture."""
    from PIL import Image

    picture = Image.new("RGB", (64, 64), "white")
    picture.paste(colour, box)
    return picture.resize(size, Image.Resampling.NEAREST)


def sent(picture: "Image", name: str = "picture.png") -> Media:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", name)


def received(media: Media) -> "Image":
    from PIL import Image

    return Image.open(io.BytesIO(media.content))


def processor(folder: Path, kind: str, **values: Any) -> Any:
    """Saved under the name that repositories have for it, whatever class it is here."""
    from transformers import AutoImageProcessor

    (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": kind, **values}))
    return AutoImageProcessor.from_pretrained(folder)


def pixels(processor: Any, *pictures: "Image") -> Any:
    return processor(images=list(pictures), return_tensors="pt")["pixel_values"]
