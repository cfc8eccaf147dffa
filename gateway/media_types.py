"""Media types of files, from their content and name."""

import codecs
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from gateway.media_sniffing import UNKNOWN, sniff
from services.common.errors import InvalidRequest

_SUFFIXES: Mapping[str, str] = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "jfif"), "image/jpeg"),
    **dict.fromkeys(("tif", "tiff"), "image/tiff"),
    **dict.fromkeys(("heic", "heif", "hif"), "image/heic"),
    **dict.fromkeys(("bmp", "dib"), "image/bmp"),
    **dict.fromkeys(("wav", "wave"), "audio/wav"),
    **dict.fromkeys(("ogg", "oga", "opus", "spx"), "audio/ogg"),
    **dict.fromkeys(("m4a", "m4b"), "audio/mp4"),
    **dict.fromkeys(("mp4", "m4v"), "video/mp4"),
    **dict.fromkeys(("mov", "qt"), "video/quicktime"),
    **dict.fromkeys(("aif", "aiff", "aifc"), "audio/aiff"),
    **dict.fromkeys(("mid", "midi"), "audio/midi"),
    **dict.fromkeys(("htm", "html", "xhtml"), "text/html"),
    **dict.fromkeys(("md", "markdown"), "text/markdown"),
    **dict.fromkeys(("txt", "text", "log", "srt", "vtt", "py", "yaml", "yml", "toml", "ini", "rst"), "text/plain"),
    "png": "image/png",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "ico": "image/x-icon",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "mp3": "audio/mpeg",
    "aac": "audio/aac",
    "amr": "audio/amr",
    "flac": "audio/flac",
    "weba": "audio/webm",
    "webm": "video/webm",
    "mkv": "video/x-matroska",
    "avi": "video/x-msvideo",
    "ogv": "video/ogg",
    "zip": "application/zip",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "gz": "application/gzip",
    "7z": "application/x-7z-compressed",
    "xz": "application/x-xz",
    "zst": "application/zstd",
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "xml": "application/xml",
}

_OFFICE = "application/vnd.openxmlformats-officedocument."
_FAMILIES: tuple[frozenset[str], ...] = (
    frozenset({"video/mp4", "audio/mp4", "video/quicktime"}),
    frozenset({"video/webm", "audio/webm", "video/x-matroska"}),
    frozenset({"video/ogg", "audio/ogg"}),
    frozenset({"image/heic", "image/avif"}),
    frozenset({"application/zip", *(kind for kind in _SUFFIXES.values() if kind.startswith(_OFFICE))}),
)
"""Types that share a container format; the name then determines the type."""

_PLAIN_TEXT = frozenset(
    {"text/plain", "text/markdown", "text/csv", "text/tab-separated-values", "application/x-ndjson"}
)
"""Text types without a recognizable structure."""

_STRUCTURED_TEXT = frozenset({"text/html", "application/xml", "application/json"})
"""Text types that are usually recognizable, but can look like plain text."""


def suffix(media_type: str) -> str:
    """Usual file extension of a media type, such as "png"; empty if unknown."""
    return next((ending for ending, kind in _SUFFIXES.items() if kind == media_type), "")


def is_text(media_type: str) -> bool:
    """Whether content of the type must be valid UTF-8."""
    return media_type in _PLAIN_TEXT | _STRUCTURED_TEXT or media_type == "image/svg+xml"


def by_name(name: str) -> str:
    """Media type of a file name's extension; empty if unknown."""
    return _SUFFIXES.get(PurePosixPath(name).suffix.removeprefix(".").lower(), "")


def is_known(media_type: str) -> bool:
    """Whether content of the type is recognized by its bytes or name."""
    return media_type in _SUFFIXES.values()


def in_one_family(one: str, other: str) -> bool:
    """Whether two types share a container format."""
    return any({one, other} <= family for family in _FAMILIES)


def media_type(name: str, head: bytes, *, whole: bool) -> str:
    """Determines the media type of a file by its content, and by its name where the content is ambiguous.

    Raises:
        InvalidRequest: FILE_TYPE, content and name contradict each other; NOT_UTF8, a text file is not UTF-8.
    """
    sniffed_type = sniff(head, whole=whole)
    named_type = by_name(name)
    if named_type in ("", sniffed_type):
        return sniffed_type
    if in_one_family(named_type, sniffed_type):
        return named_type
    if named_type in _PLAIN_TEXT and is_text(sniffed_type):
        return named_type
    if named_type in _STRUCTURED_TEXT and sniffed_type == "text/plain" and _could_be(named_type, head):
        return named_type
    if is_text(named_type) and sniffed_type == UNKNOWN:
        raise InvalidRequest(
            f"cannot accept {name}: its name means text, but its content is not UTF-8",
            reason="NOT_UTF8",
            remedy="save it as UTF-8 and send it again",
        )
    raise InvalidRequest(
        f"cannot accept {name}: its name means {named_type}, but its content is {sniffed_type}",
        reason="FILE_TYPE",
        remedy="send the right file, or rename it to match its content",
    )


def _could_be(named_type: str, head: bytes) -> bool:
    text = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if named_type == "application/json":
        return re.match(rb'[\[{"\-0-9]|true|false|null', text) is not None
    return text.startswith(b"<")
