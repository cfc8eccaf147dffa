"""Whether a media type that somebody states is one for bytes of the type that was found."""

from collections.abc import Mapping

from gateway.media_sniffing import UNKNOWN
from gateway.media_types import in_one_family, is_known, is_text
from services.common.errors import InvalidRequest

_SILENT = frozenset({"", UNKNOWN, "binary/octet-stream", "application/x-download", "application/force-download", "*/*"})
"""What says nothing about the bytes."""

_SAME: Mapping[str, str] = {
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

_TEXTUAL = ("json", "xml", "yaml", "javascript", "toml", "sql", "x-sh", "/vnd.ms-excel")
"""What else is text; the last is what browsers on Windows call a CSV file."""

_HEARD_OR_SEEN = ("image", "audio", "video")


def check_claim(name: str, claimed: str, found: str) -> None:
    """Compares a stated media type with the one found in the bytes.

    Raises:
        InvalidRequest: FILE_TYPE, they cannot both be right.
    """
    if not agree(claimed, found):
        raise InvalidRequest(
            f"{name} is sent as {claimed[:100]} but its content is {found}",
            reason="FILE_TYPE",
            remedy="send the right file, with its own type or none",
        )


def usual(claimed: str) -> str:
    """A stated media type in its usual spelling, without parameters; empty if it says nothing."""
    plain = claimed.partition(";")[0].strip().lower()
    return "" if plain in _SILENT else _SAME.get(plain, plain)


def agree(claimed: str, found: str) -> bool:
    """Whether bytes found to be of a type may be called by the other."""
    claimed = usual(claimed)
    if claimed in ("", found) or in_one_family(claimed, found):
        return True
    if is_text(found):
        return claimed.startswith("text/") or is_text(claimed) or claimed.endswith(_TEXTUAL)
    if is_known(claimed) or claimed.startswith("text/"):
        return False
    kind = claimed.partition("/")[0]
    return found == UNKNOWN or kind not in _HEARD_OR_SEEN or kind == found.partition("/")[0]
