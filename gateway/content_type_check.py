"""Compares a file's stated media type with the type found in its bytes."""

from collections.abc import Mapping

from gateway.media_sniffing import UNKNOWN
from gateway.media_types import in_one_family, is_known, is_text
from services.common.errors import InvalidRequest

_UNINFORMATIVE = frozenset(
    {"", UNKNOWN, "binary/octet-stream", "application/x-download", "application/force-download", "*/*"}
)
"""Types that state nothing about the content."""

_ALIASES: Mapping[str, str] = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-ms-bmp": "image/bmp",
    "image/x-bmp": "image/bmp",
    "image/vnd.microsoft.icon": "image/x-icon",
    "image/heif": "image/heic",
    "image/svg": "image/svg+xml",
    **dict.fromkeys(("audio/mp3", "audio/x-mp3", "audio/mpeg3", "audio/x-mpeg", "audio/mpg"), "audio/mpeg"),
    **dict.fromkeys(("audio/x-wav", "audio/wave", "audio/vnd.wave", "audio/x-pn-wav"), "audio/wav"),
    **dict.fromkeys(("audio/x-m4a", "audio/m4a", "audio/aacp"), "audio/mp4"),
    **dict.fromkeys(("audio/opus", "audio/vorbis", "application/ogg", "audio/x-vorbis+ogg"), "audio/ogg"),
    "audio/x-flac": "audio/flac",
    "audio/x-aac": "audio/aac",
    "audio/x-aiff": "audio/aiff",
    "audio/x-midi": "audio/midi",
    "audio/x-matroska": "video/x-matroska",
    "application/x-matroska": "video/x-matroska",
    "video/avi": "video/x-msvideo",
    "video/msvideo": "video/x-msvideo",
    "video/x-m4v": "video/mp4",
    "application/mp4": "video/mp4",
    "application/x-pdf": "application/pdf",
    "application/x-zip-compressed": "application/zip",
    "application/x-zip": "application/zip",
    "application/x-gzip": "application/gzip",
}

_TEXT_SUFFIXES = ("json", "xml", "yaml", "javascript", "toml", "sql", "x-sh", "/vnd.ms-excel")
"""Suffixes of further text types; the last is what browsers on Windows state for CSV files."""

_MEDIA_KINDS = ("image", "audio", "video")


def check_content_type(name: str, stated_type: str, sniffed_type: str) -> None:
    """Checks that a stated media type is compatible with the type found in the bytes.

    Raises:
        InvalidRequest: FILE_TYPE, the types are incompatible.
    """
    if not is_compatible(stated_type, sniffed_type):
        raise InvalidRequest(
            f"cannot accept {name}: it was sent as {stated_type[:100]}, but its content is {sniffed_type}",
            reason="FILE_TYPE",
            remedy="send the file with its real content type, or without one",
        )


def normalized_type(stated_type: str) -> str:
    """Canonical name of a media type without parameters; empty if the type states nothing."""
    plain = stated_type.partition(";")[0].strip().lower()
    return "" if plain in _UNINFORMATIVE else _ALIASES.get(plain, plain)


def is_compatible(stated_type: str, sniffed_type: str) -> bool:
    """Whether content of the sniffed type may be sent with the stated type."""
    stated_type = normalized_type(stated_type)
    if stated_type in ("", sniffed_type) or in_one_family(stated_type, sniffed_type):
        return True
    if is_text(sniffed_type):
        return stated_type.startswith("text/") or is_text(stated_type) or stated_type.endswith(_TEXT_SUFFIXES)
    if is_known(stated_type) or stated_type.startswith("text/"):
        return False
    kind = stated_type.partition("/")[0]
    return sniffed_type == UNKNOWN or kind not in _MEDIA_KINDS or kind == sniffed_type.partition("/")[0]
