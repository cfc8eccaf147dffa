"""Image editing by instruction (Pillow and OpenCV): colours, lines, sharpness, size, position."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.host.isolation import isolated_single
from experts.host.media import derive_name, open_image, png
from experts.lite.edit_instructions import ABILITIES, parse_steps
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

_CANNY_SIDE = 1000
_MAX_PIXELS = 40_000_000
_SEPIA = (0.393, 0.769, 0.189, 0, 0.349, 0.686, 0.168, 0, 0.272, 0.534, 0.131, 0)

Numbers = Mapping[str, float]


def image_to_image(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return isolated_single(_edit, port="image")


def _edit(inputs: Inputs, _parameters: Parameters) -> Outputs:
    """Runs in a worker process."""
    instruction = str(inputs.get("instruction") or "")
    if not instruction.strip():
        raise InvalidRequest(
            "there is no instruction for the picture",
            remedy=f"send an instruction; this model supports: {ABILITIES}",
            port="instruction",
        )
    steps = parse_steps(instruction)
    picture = open_image(inputs["image"], alpha=True)
    for step in steps:
        picture = _EDITS[step.name](picture, step.numbers)
    return {"image": png(picture, derive_name(inputs["image"], "-".join(step.name for step in steps[:3]), "png"))}


def _on_colours(change: "Callable[[Image, Numbers], Image]") -> "Callable[[Image, Numbers], Image]":
    """Returns a function that applies a change to the colours and preserves the transparency."""

    def changed(picture: "Image", numbers: Numbers) -> "Image":
        result = change(picture.convert("RGB"), numbers).convert("RGB")
        if picture.mode == "RGBA":
            result.putalpha(picture.getchannel("A"))
        return result

    return changed


def _grey(picture: "Image", _numbers: Numbers) -> "Image":
    return picture.convert("L")


def _sepia(picture: "Image", _numbers: Numbers) -> "Image":
    return picture.convert("RGB", _SEPIA)


def _invert(picture: "Image", _numbers: Numbers) -> "Image":
    from PIL import ImageOps

    return ImageOps.invert(picture)


def _edges(picture: "Image", _numbers: Numbers) -> "Image":
    """Returns white edges on black, as edge-conditioned models expect; thresholds adapt to the image's gradients."""
    import cv2
    import numpy as np
    from PIL import Image

    smooth = cv2.GaussianBlur(np.asarray(picture.convert("L")), (0, 0), max(1.0, max(picture.size) / _CANNY_SIDE))
    otsu, _ = cv2.threshold(smooth, 0, 255, cv2.THRESH_OTSU)
    return Image.fromarray(cv2.Canny(smooth, otsu / 2, otsu, L2gradient=True))


def _sketch(picture: "Image", _numbers: Numbers) -> "Image":
    """Returns a line drawing by comparing each pixel with its surroundings."""
    import cv2
    import numpy as np
    from PIL import Image

    grey = np.asarray(picture.convert("L"))
    around = cv2.GaussianBlur(grey, (0, 0), max(2.0, max(picture.size) / 100))
    return Image.fromarray(cv2.divide(grey, cv2.max(around, 1), scale=250))


def _blur(picture: "Image", numbers: Numbers) -> "Image":
    from PIL import ImageFilter

    return picture.filter(ImageFilter.GaussianBlur(min(numbers["radius"], max(picture.size))))


def _sharpen(picture: "Image", numbers: Numbers) -> "Image":
    from PIL import ImageFilter

    return picture.filter(ImageFilter.UnsharpMask(radius=2, percent=round(100 * numbers["amount"]), threshold=2))


def _brightness(picture: "Image", numbers: Numbers) -> "Image":
    from PIL import ImageEnhance

    return ImageEnhance.Brightness(picture).enhance(numbers["factor"])


def _contrast(picture: "Image", numbers: Numbers) -> "Image":
    from PIL import ImageEnhance

    return ImageEnhance.Contrast(picture).enhance(numbers["factor"])


def _resize(picture: "Image", numbers: Numbers) -> "Image":
    from PIL.Image import Resampling

    width, height = max(1, round(numbers["width"])), max(1, round(numbers["height"]))
    if width * height > _MAX_PIXELS:
        raise InvalidRequest(
            f"the picture would have {width} x {height} pixels; the limit is {_MAX_PIXELS // 1_000_000} million",
            remedy="request a smaller size",
            port="instruction",
        )
    return picture.resize((width, height), Resampling.LANCZOS)


def _fit(picture: "Image", numbers: Numbers) -> "Image":
    """Resizes to fit within a size, and preserves the proportions."""
    return _scale(picture, {"factor": min(numbers["width"] / picture.width, numbers["height"] / picture.height)})


def _scale(picture: "Image", numbers: Numbers) -> "Image":
    factor = numbers["factor"]
    return _resize(picture, {"width": picture.width * factor, "height": picture.height * factor})


def _side(picture: "Image", numbers: Numbers) -> "Image":
    sides = {"wide": picture.width, "high": picture.height, "longest": max(picture.size)}
    ((side, size),) = numbers.items()
    return _scale(picture, {"factor": size / sides[side]})


def _crop(picture: "Image", numbers: Numbers) -> "Image":
    """Crops from the centre, at most to the size of the image."""
    share = numbers.get("share", 1.0)
    width = min(picture.width, max(1, round(numbers.get("width", picture.width * share))))
    height = min(picture.height, max(1, round(numbers.get("height", picture.height * share))))
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def _trim(picture: "Image", numbers: Numbers) -> "Image":
    """Cuts so many pixels off each side."""
    right, bottom = picture.width - numbers.get("right", 0), picture.height - numbers.get("bottom", 0)
    box = round(numbers.get("left", 0)), round(numbers.get("top", 0)), round(right), round(bottom)
    if box[0] >= box[2] or box[1] >= box[3]:
        raise InvalidRequest(
            f"nothing of the {picture.width} x {picture.height} pixels would be left",
            remedy="cut off less",
            port="instruction",
        )
    return picture.crop(box)


def _trim_share(picture: "Image", numbers: Numbers) -> "Image":
    lengths = {"left": picture.width, "right": picture.width, "top": picture.height, "bottom": picture.height}
    return _trim(picture, {side: share * lengths[side] for side, share in numbers.items()})


def _ratio(picture: "Image", numbers: Numbers) -> "Image":
    """Crops to a ratio of width to height."""
    unit = min(picture.width / numbers["width"], picture.height / numbers["height"])
    return _crop(picture, {"width": unit * numbers["width"], "height": unit * numbers["height"]})


def _square(picture: "Image", _numbers: Numbers) -> "Image":
    side = min(picture.size)
    return _crop(picture, {"width": side, "height": side})


def _rotate(picture: "Image", numbers: Numbers) -> "Image":
    """Rotates without cropping; new corners are white, or transparent if the image has transparency."""
    from PIL.Image import Resampling

    corners = (255,) * 3 if picture.mode == "RGB" else (0,) * 4
    return picture.rotate(numbers["degrees"], Resampling.BICUBIC, expand=True, fillcolor=corners)


def _flip(picture: "Image", _numbers: Numbers) -> "Image":
    from PIL.Image import Transpose

    return picture.transpose(Transpose.FLIP_TOP_BOTTOM)


def _mirror(picture: "Image", _numbers: Numbers) -> "Image":
    from PIL.Image import Transpose

    return picture.transpose(Transpose.FLIP_LEFT_RIGHT)


_EDITS: "Mapping[str, Callable[[Image, Numbers], Image]]" = {
    "grey": _on_colours(_grey),
    "sepia": _on_colours(_sepia),
    "invert": _on_colours(_invert),
    "edges": _on_colours(_edges),
    "sketch": _on_colours(_sketch),
    "blur": _blur,
    "sharpen": _on_colours(_sharpen),
    "brightness": _on_colours(_brightness),
    "contrast": _on_colours(_contrast),
    "resize": _resize,
    "scale": _scale,
    "fit": _fit,
    "trim-px": _trim,
    "trim-share": _trim_share,
    "side": _side,
    "crop": _crop,
    "square": _square,
    "ratio": _ratio,
    "rotate": _rotate,
    "flip": _flip,
    "mirror": _mirror,
}
