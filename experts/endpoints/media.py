"""Prepares images to be sent to endpoints, and checks media received from them."""

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
_SIGNATURES: tuple[tuple[int, bytes, str, str], ...] = (
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
"""File signatures: offset, bytes, media type, file extension."""


def prepare_image(media: Media, port: str = "image") -> Media:
    """Re-encodes an image upright and without its metadata, such as the location, before it is sent."""
    picture = open_image(media, port=port)
    lossless = media.media_type in _LOSSLESS
    buffer = io.BytesIO()
    if lossless:
        picture.save(buffer, "PNG", compress_level=1)
    else:
        picture.save(buffer, "JPEG", quality=_QUALITY)
    kind = "png" if lossless else "jpeg"
    return Media(buffer.getvalue(), f"image/{kind}", f"picture.{kind}")


def to_data_url(media: Media) -> str:
    return f"data:{media.media_type};base64,{base64.b64encode(media.content).decode()}"


def check_audio(content: bytes, model_id: str, name: str = "speech") -> Media:
    """Returns audio received from an endpoint.

    Raises:
        CorruptData: it is not an audio file.
    """
    return _identify(content, "audio/", model_id, name)


def check_video(content: bytes, model_id: str, name: str = "video") -> Media:
    """Returns video received from an endpoint.

    Raises:
        CorruptData: it is not a video file.
    """
    return _identify(content, "video/", model_id, name)


def decode_image(content: bytes, model_id: str) -> "Image":
    """Decodes an image received from an endpoint.

    Raises:
        CorruptData: it cannot be decoded.
    """
    try:
        return open_image(Media(content, "image/png", "reply"), alpha=True)
    except InvalidRequest as error:
        raise CorruptData(f"cannot decode the image from {model_id}", remedy="try again") from error


def _identify(content: bytes, kind: str, model_id: str, name: str) -> Media:
    for offset, signature, media_type, extension in _SIGNATURES:
        if media_type.startswith(kind) and content[offset : offset + len(signature)] == signature:
            return Media(content, media_type, f"{name}.{extension}")
    raise CorruptData(f"the reply of {model_id} is not {kind.rstrip('/')}", remedy="try another model")
