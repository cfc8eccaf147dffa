"""Pictures, pages and recordings as models take them: decoded within limits, and encoded again."""

import io
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from experts.host import pdf
from experts.host.handler import Media
from experts.host.pdf import Line
from services.runtime.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from PIL.Image import Image

MAX_PIXELS = 100_000_000
MAX_FRAMES = pdf.MAX_PAGES

_FORMATS = ("PNG", "JPEG", "MPO", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "HEIF", "PPM", "JPEG2000", "ICO")
"""No others: some decoders start programs, and most are hardly ever tried."""
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
    """
    if media.media_type == pdf.MEDIA_TYPE:
        return _only_page(media, port).picture()
    with _decoding(media, port) as image:
        return _upright(image, alpha=alpha)


def pages(media: Media, *, port: str = "image") -> list[Page]:
    """The pages of a PDF, the frames of a TIFF, or the one picture."""
    if media.media_type == pdf.MEDIA_TYPE:
        return [_pdf_page(page, media, port) for page in pdf.read(media.content, name=media.name, port=port)]
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
    return [
        Page(number, width, height, (), partial(_frame, media, number - 1, port)) for number in range(1, frames + 1)
    ]


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


def _only_page(media: Media, port: str) -> Page:
    found = pages(media, port=port)
    if len(found) > 1:
        raise InvalidRequest(
            f"{media.name} has {len(found)} pages where one picture is wanted.",
            remedy="Send the page you mean on its own.",
            port=port,
        )
    return found[0]


def _pdf_page(page: pdf.PdfPage, media: Media, port: str) -> Page:
    picture = partial(pdf.render, media.content, page.number, name=media.name, port=port)
    return Page(page.number, page.width, page.height, page.lines, picture)


def _frame(media: Media, index: int, port: str) -> "Image":
    with _decoding(media, port) as image:
        if index:
            image.seek(index)
        return _upright(image, alpha=False)


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
    from PIL import ImageOps

    image.load()
    upright = ImageOps.exif_transpose(_eight_bit(image))
    if not upright.has_transparency_data:
        return upright.convert("RGB")
    clear = upright.convert("RGBA")
    if alpha:
        return clear
    white: Image = _pillow().new("RGBA", clear.size, "white")
    white.alpha_composite(clear)
    return white.convert("RGB")


def _eight_bit(image: "Image") -> "Image":
    """Pillow cuts deeper greys off at white instead of scaling them."""
    if not image.mode.startswith(("I", "F")):
        return image
    import numpy as np

    grey = np.asarray(image, dtype=np.float32)
    if image.mode == "F":
        finite = np.where(np.isfinite(grey), grey, 0)
        grey = (finite - finite.min()) / max(float(np.ptp(finite)), 1e-9)
    else:
        grey = grey / (65535.0 if grey.max() > 255 else 255.0)  # noqa: PLR2004  # 16 or 8 bits
    scaled: Image = _pillow().fromarray((grey.clip(0, 1) * 255).round().astype(np.uint8))
    scaled.info = dict(image.info)
    return scaled
