"""Pictures and pages as models take them: decoded in a worker process within limits, and encoded again."""

import io
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from experts.host import pdf
from experts.host.handler import Media
from experts.host.isolation import Budget, isolated
from experts.host.pdf import Line
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from PIL.Image import Image

MAX_PIXELS = 100_000_000
MAX_FRAMES = pdf.MAX_PAGES

_FORMATS = ("PNG", "JPEG", "MPO", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "HEIF", "PPM", "JPEG2000", "ICO")
"""No others: some decoders start programs, and most are hardly ever tried."""
_STRIP_PIXELS = 1 << 20
_PICTURES_REMEDY = "Send a PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF or HEIC picture, or a PDF."


@dataclass(frozen=True)
class Page:
    """One page of a document, or the one picture."""

    number: int
    width: float
    height: float
    lines: tuple[Line, ...]
    """The file's own text, placed in the dots of the picture; empty where there is none and that has to be read."""
    picture: "Callable[[], Image]"
    """Draws or decodes the page, in RGB."""


def open_image(media: Media, *, port: str = "image", alpha: bool = False) -> "Image":
    """The picture upright and in RGB; of several frames the first; a PDF of one page is the picture of that page.

    Transparency lies on white, or is kept (RGBA) where asked for.

    Raises:
        InvalidRequest: it cannot be decoded, is too large, or DECODE_LIMIT.
    """
    return isolated(decode_here, media, port, alpha, file=media.name, port=port)


def pages(media: Media, *, port: str = "image") -> list[Page]:
    """The pages of a PDF, the frames of a TIFF, or the one picture.

    Raises:
        InvalidRequest: it cannot be decoded, is too large, or DECODE_LIMIT.
    """
    budget = Budget()
    found = isolated(_read_pages, media, port, file=media.name, port=port, budget=budget)
    return [
        Page(page.number, page.width, page.height, page.lines, partial(_picture_of, media, page.number, port, budget))
        for page in found
    ]


def _picture_of(media: Media, number: int, port: str, budget: Budget) -> "Image":
    return isolated(_render, media, number, port, file=media.name, port=port, budget=budget)


def png(image: "Image", name: str) -> Media:
    """The picture without loss, packed lightly: packing tight takes seconds for a photo and saves little."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return Media(buffer.getvalue(), "image/png", name)


def box(corners: "Sequence[float]") -> dict[str, float]:
    """Where something is in a picture, as results say it: left, upper, right and lower edge, to a tenth of a pixel."""
    return {side: round(place, 1) for side, place in zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)}


def renamed(media: Media, suffix: str, extension: str) -> str:
    """A name for what was made of a file: photo.jpg becomes photo-faces.png."""
    stem = PurePosixPath(media.name.replace("\\", "/")).stem or "file"
    return f"{stem}-{suffix}.{extension}"


# ------------------------------------------------------- what runs in a worker process


def decode_here(media: Media, port: str = "image", alpha: bool = False) -> "Image":  # arguments travel by position
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
                f"{media.name} has {frames} pages; at most {MAX_FRAMES} are read at once.",
                remedy="Split it and send the parts one by one.",
                port=port,
            )
        image.load()
        width, height = image.size
    return [pdf.PdfPage(number, width, height, ()) for number in range(1, frames + 1)]


def _only_page(media: Media, port: str) -> pdf.PdfPage:
    found = _read_pages(media, port)
    if len(found) > 1:
        raise InvalidRequest(
            f"{media.name} has {len(found)} pages where one picture is wanted.",
            remedy="Send the page you mean on its own.",
            port=port,
        )
    return found[0]


@cache
def _pillow() -> Any:
    """Pillow, told once what it may read and how much."""
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
    """Opens the picture; whatever the decoder says against the bytes becomes one clear refusal."""
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
        raise InvalidRequest(f"{media.name} is not a picture.", remedy=_PICTURES_REMEDY, port=port) from error
    except Exception as error:  # decoders raise anything on broken bytes
        raise InvalidRequest(
            f"{media.name} is damaged: the picture in it cannot be decoded.",
            remedy="Send the original, or open it and save it again.",
            port=port,
        ) from error


def _check_size(image: "Image", media: Media, port: str) -> None:
    """Before anything is decoded: the header says how large it will be."""
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise _too_large(media, port, f"{width} x {height} pixels")


def _too_large(media: Media, port: str, size: str) -> InvalidRequest:
    return InvalidRequest(
        f"{media.name} has {size}; at most {MAX_PIXELS // 1_000_000} million are decoded.",
        remedy="Send a smaller version of the picture.",
        port=port,
    )


def _upright(image: "Image", *, alpha: bool) -> "Image":
    """The picture in RGB, or RGBA, turned as its metadata say.

    It is made strip by strip: a picture of the largest size fits into the limit on memory twice, not four times.
    """
    from PIL import ExifTags, ImageOps

    image.load()
    see_through = image.has_transparency_data
    mode = "RGBA" if alpha and see_through else "RGB"
    if image.mode == mode:
        ImageOps.exif_transpose(image, in_place=True)
        return image
    convert = _converter(image, mode, on_white=see_through and not alpha)
    upright: Image = _pillow().new(mode, image.size)
    for box in _strips(image.size):
        upright.paste(convert(image.crop(box)), box)
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
    """Converts a part of the picture."""
    if image.mode.startswith(("I", "F")):
        low, high = _extremes(image)
        return lambda strip: _eight_bit(strip, low, high).convert(mode)
    if not on_white:
        return lambda strip: strip.convert(mode)
    pillow = _pillow()

    def laid_on_white(strip: "Image") -> "Image":
        white: Image = pillow.new("RGBA", strip.size, "white")
        white.alpha_composite(strip.convert("RGBA"))
        return white.convert(mode)

    return laid_on_white


def _extremes(image: "Image") -> tuple[float, float]:
    """The values that become black and white."""
    import numpy as np

    if image.mode != "F":
        whitest: Any = image.getextrema()[1]
        return 0.0, 65535.0 if whitest > 255 else 255.0  # noqa: PLR2004  # 16 or 8 bits
    found = [np.asarray(image.crop(box)) for box in _strips(image.size)]
    finite = [np.where(np.isfinite(strip), strip, 0) for strip in found]
    low = min(float(strip.min()) for strip in finite)
    return low, max(low + 1e-9, *(float(strip.max()) for strip in finite))


def _eight_bit(strip: "Image", low: float, high: float) -> "Image":
    """Pillow cuts deeper greys off at white instead of scaling them."""
    import numpy as np

    values = np.asarray(strip, dtype=np.float32)
    grey = (np.where(np.isfinite(values), values, 0) - low) / (high - low)
    scaled: Image = _pillow().fromarray((grey.clip(0, 1) * 255).round().astype(np.uint8))
    return scaled
