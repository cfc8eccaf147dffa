"""Pictures and recordings on their way out and back."""

import base64
import io
from typing import TYPE_CHECKING

from experts.host.handler import Media
from experts.host.media import open_image
from services.common.errors import CorruptData, InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

_LOSSLESS = frozenset({"image/png", "image/gif", "image/bmp", "image/tiff", "application/pdf"})
_QUALITY = 95
_SIGNS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"RIFF", "audio/wav", "wav"),
    (0, b"fLaC", "audio/flac", "flac"),
    (0, b"OggS", "audio/ogg", "ogg"),
    (0, b"ID3", "audio/mpeg", "mp3"),
    (0, b"\xff\xfb", "audio/mpeg", "mp3"),
    (0, b"\xff\xf3", "audio/mpeg", "mp3"),
    (0, b"\xff\xf2", "audio/mpeg", "mp3"),
    (4, b"ftyp", "video/mp4", "mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm", "webm"),
)
"""How files begin, and where in them."""


def sendable(media: Media, port: str = "image") -> Media:
    """The picture alone, upright: what else was in the file, such as where it was taken, stays in the house."""
    picture = open_image(media, port=port)
    lossless = media.media_type in _LOSSLESS
    buffer = io.BytesIO()
    if lossless:
        picture.save(buffer, "PNG", compress_level=1)
    else:
        picture.save(buffer, "JPEG", quality=_QUALITY)
    kind = "png" if lossless else "jpeg"
    return Media(buffer.getvalue(), f"image/{kind}", f"picture.{kind}")


def data_url(media: Media) -> str:
    return f"data:{media.media_type};base64,{base64.b64encode(media.content).decode()}"


def recording(content: bytes, model_id: str, name: str = "speech") -> Media:
    """The bytes an endpoint gave for sound.

    Raises:
        CorruptData: they are none.
    """
    return _recognised(content, "audio/", model_id, name)


def film(content: bytes, model_id: str, name: str = "video") -> Media:
    """The bytes an endpoint gave for moving pictures.

    Raises:
        CorruptData: they are none.
    """
    return _recognised(content, "video/", model_id, name)


def picture(content: bytes, model_id: str) -> "Image":
    """The picture an endpoint gave.

    Raises:
        CorruptData: it is none.
    """
    try:
        return open_image(Media(content, "image/png", "reply"), alpha=True)
    except InvalidRequest as error:
        raise CorruptData(f"{model_id} gave a picture that cannot be decoded", remedy="try again") from error


def _recognised(content: bytes, kind: str, model_id: str, name: str) -> Media:
    for place, sign, media_type, extension in _SIGNS:
        if media_type.startswith(kind) and content[place : place + len(sign)] == sign:
            return Media(content, media_type, f"{name}.{extension}")
    raise CorruptData(f"{model_id} gave bytes that are no {kind.rstrip('/')}", remedy="try another model")
