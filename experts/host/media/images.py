"""Decodes images and document pages in a worker process within limits, and encodes images."""

import io
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media
from experts.host.isolation import Budget, run_isolated
from experts.host.media import pdf
from experts.host.media.pdf import Line
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from PIL.Image import Image

MAX_PIXELS = 100_000_000
MAX_FRAMES = pdf.MAX_PAGES

_FORMATS = ("PNG", "JPEG", "MPO", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "HEIF", "PPM", "JPEG2000", "ICO")
"""Other decoders of Pillow are disabled: some start programs, and most are rarely tested."""
_STRIP_PIXELS = 1 << 20
_FORMATS_REMEDY = "send a PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF or HEIC image, or a PDF"


@dataclass(frozen=True)
class Page:
    """One page of a document, or a single image."""

    number: int
    width: float
    height: float
    lines: tuple[Line, ...]
    """The text embedded in the file, in pixel coordinates of the page image; empty if the page needs OCR."""
    picture: "Callable[[], Image]"
    """Renders or decodes the page, in RGB."""


def open_image(media: Media, *, port: str = "image", alpha: bool = False) -> "Image":
    """Decodes an image upright and in RGB: the first of several frames, or the only page of a PDF.

    Args:
        media: the file.
        port: its input port.
        alpha: whether to keep transparency (RGBA) instead of blending it with white.

    Raises:
        InvalidRequest: it cannot be decoded, is too large, or DECODE_LIMIT.
    """
    return run_isolated(decode_in_process, media, port, alpha, file=media.name, port=port)


def pages(media: Media, *, port: str = "image") -> list[Page]:
    """Returns the pages of a PDF, the frames of a TIFF, or the single image.

    Raises:
        InvalidRequest: it cannot be decoded, is too large, or DECODE_LIMIT.
    """
    budget = Budget()
    found = run_isolated(_read_pages, media, port, file=media.name, port=port, budget=budget)
    return [
        Page(page.number, page.width, page.height, page.lines, partial(_picture_of, media, page.number, port, budget))
        for page in found
    ]


def _picture_of(media: Media, number: int, port: str, budget: Budget) -> "Image":
    return run_isolated(_render, media, number, port, file=media.name, port=port, budget=budget)


def png(image: "Image", name: str) -> Media:
    """Encodes an image as PNG with light compression: more takes seconds for a photo and saves little."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return Media(buffer.getvalue(), "image/png", name)


def box_to_json(corners: "Sequence[float]") -> dict[str, float]:
    """Returns a bounding box as results state it: left, upper, right and lower edge, to a tenth of a pixel."""
    return {side: round(edge, 1) for side, edge in zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)}


def derive_name(media: Media, suffix: str, extension: str) -> str:
    """Returns the name of a file derived from another: photo.jpg becomes photo-faces.png."""
    stem = PurePosixPath(media.name.replace("\\", "/")).stem or "file"
    return f"{stem}-{suffix}.{extension}"


# ------------------------------------------------------- in a worker process


def decode_in_process(
    media: Media, port: str = "image", alpha: bool = False
) -> "Image":  # arguments travel by position
    """As open_image, in this process and without limits."""
    if media.media_type == pdf.MEDIA_TYPE:
        return _render(media, _only_page(media, port).number, port)
    with _decoding(media, port) as image:
        return _upright(image, alpha=alpha)


def _render(media: Media, number: int, port: str) -> "Image":
    if media.media_type == pdf.MEDIA_TYPE:
        return pdf.render(media.content, number, name=media.name, port=port)
    with _decoding(media, port) as image:
        if number > 1:
            image.seek(number - 1)
        return _upright(image, alpha=False)


def _read_pages(media: Media, port: str) -> list[pdf.PdfPage]:
    if media.media_type == pdf.MEDIA_TYPE:
        return pdf.read(media.content, name=media.name, port=port)
    with _decoding(media, port) as image:
        frames = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
        if frames > MAX_FRAMES:
            raise InvalidRequest(
                f"{media.name} has {frames} pages; the limit is {MAX_FRAMES}",
                remedy="split it and send the parts separately",
                port=port,
            )
        image.load()
        width, height = image.size
    return [pdf.PdfPage(number, width, height, ()) for number in range(1, frames + 1)]


def _only_page(media: Media, port: str) -> pdf.PdfPage:
    found = _read_pages(media, port)
    if len(found) > 1:
        raise InvalidRequest(
            f"{media.name} has {len(found)} pages; the input takes one image",
            remedy="send a file with only the page to process",
            port=port,
        )
    return found[0]


@cache
def _pillow() -> Any:
    """Imports Pillow and configures its size limit and formats once."""
    from PIL import Image

    Image.init()
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    try:
        from pi_heif import register_heif_opener
    except ImportError:
        return Image
    register_heif_opener()
    return Image


@contextmanager
def _decoding(media: Media, port: str) -> "Iterator[Image]":
    """Opens an image; raises InvalidRequest for any error of the decoder."""
    pillow = _pillow()
    bombs = (pillow.DecompressionBombError, pillow.DecompressionBombWarning)
    try:
        with pillow.open(
            io.BytesIO(media.content), formats=[name for name in _FORMATS if name in pillow.OPEN]
        ) as image:
            _check_size(image, media, port)
            yield image
    except (InvalidRequest, MemoryError):
        raise
    except bombs as error:
        raise _too_large(media, port, "too many pixels") from error
    except pillow.UnidentifiedImageError as error:
        raise InvalidRequest(
            f"cannot decode {media.name}: it is not a supported image", remedy=_FORMATS_REMEDY, port=port
        ) from error
    except Exception as error:  # decoders raise any exception on corrupted data
        raise InvalidRequest(
            f"cannot decode {media.name}: the image data is corrupted",
            remedy="send the original, or open it and save it again",
            port=port,
        ) from error


def _check_size(image: "Image", media: Media, port: str) -> None:
    """Checks the size in the header, before anything is decoded."""
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise _too_large(media, port, f"{width} x {height} pixels")


def _too_large(media: Media, port: str, size: str) -> InvalidRequest:
    return InvalidRequest(
        f"{media.name} has {size}; the limit is {MAX_PIXELS // 1_000_000} million",
        remedy="send a smaller version of the image",
        port=port,
    )


def _upright(image: "Image", *, alpha: bool) -> "Image":
    """Converts an image to RGB or RGBA and applies the orientation in its metadata.

    The conversion runs in strips, because an image of the maximum size fits into the memory limit only twice.
    """
    from PIL import ExifTags, ImageOps

    image.load()
    is_transparent = image.has_transparency_data
    mode = "RGBA" if alpha and is_transparent else "RGB"
    if image.mode == mode:
        ImageOps.exif_transpose(image, in_place=True)
        return image
    convert = _converter(image, mode, on_white=is_transparent and not alpha)
    upright: Image = _pillow().new(mode, image.size)
    for strip in _strips(image.size):
        upright.paste(convert(image.crop(strip)), strip)
    if profile := image.info.get("icc_profile"):
        upright.info["icc_profile"] = profile
    upright.getexif()[ExifTags.Base.Orientation] = image.getexif().get(ExifTags.Base.Orientation, 1)
    ImageOps.exif_transpose(upright, in_place=True)
    return upright


def _strips(size: tuple[int, int]) -> "Iterator[tuple[int, int, int, int]]":
    width, height = size
    rows = max(1, _STRIP_PIXELS // max(1, width))
    for top in range(0, height, rows):
        yield 0, top, width, min(height, top + rows)


def _converter(image: "Image", mode: str, *, on_white: bool) -> "Callable[[Image], Image]":
    """Returns a function that converts a part of the image."""
    if image.mode.startswith(("I", "F")):
        low, high = _extremes(image)
        return lambda strip: _eight_bit(strip, low, high).convert(mode)
    if not on_white:
        return lambda strip: strip.convert(mode)
    pillow = _pillow()

    def blend_with_white(strip: "Image") -> "Image":
        white: Image = pillow.new("RGBA", strip.size, "white")
        white.alpha_composite(strip.convert("RGBA"))
        return white.convert(mode)

    return blend_with_white


def _extremes(image: "Image") -> tuple[float, float]:
    """Returns the pixel values that become black and white."""
    import numpy as np

    if image.mode != "F":
        whitest: Any = image.getextrema()[1]
        return 0.0, 65535.0 if whitest > 255 else 255.0  # noqa: PLR2004  # 16 or 8 bits
    found = [np.asarray(image.crop(strip)) for strip in _strips(image.size)]
    finite = [np.where(np.isfinite(strip), strip, 0) for strip in found]
    low = min(float(strip.min()) for strip in finite)
    return low, max(low + 1e-9, *(float(strip.max()) for strip in finite))


def _eight_bit(strip: "Image", low: float, high: float) -> "Image":
    """Scales grey values to 8 bits; Pillow would clip them to white."""
    import numpy as np

    values = np.asarray(strip, dtype=np.float32)
    grey = (np.where(np.isfinite(values), values, 0) - low) / (high - low)
    scaled: Image = _pillow().fromarray((grey.clip(0, 1) * 255).round().astype(np.uint8))
    return scaled
