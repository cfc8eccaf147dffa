"""Whether a file is what its name says."""

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
"""Types that share a container: the name says better than the first bytes which one it is."""

_PLAIN = frozenset({"text/plain", "text/markdown", "text/csv", "text/tab-separated-values", "application/x-ndjson"})
"""Text without a form of its own."""

_MARKED = frozenset({"text/html", "application/xml", "application/json"})
"""Text that shows what it is, but may look plain."""


def suffix(media_type: str) -> str:
    """How names of such files usually end, such as "png"; empty if that is not known."""
    return next((ending for ending, kind in _SUFFIXES.items() if kind == media_type), "")


def is_text(media_type: str) -> bool:
    """Whether it must be UTF-8 to its end."""
    return media_type in _PLAIN | _MARKED or media_type == "image/svg+xml"


def by_name(name: str) -> str:
    """The media type that a name claims; empty if it claims none."""
    return _SUFFIXES.get(PurePosixPath(name).suffix.removeprefix(".").lower(), "")


def is_known(media_type: str) -> bool:
    """Whether its bytes would have shown it."""
    return media_type in _SUFFIXES.values()


def in_one_family(one: str, other: str) -> bool:
    """Whether two types share a container."""
    return any({one, other} <= family for family in _FAMILIES)


def media_type(name: str, head: bytes, *, whole: bool) -> str:
    """The media type of a file, by its bytes first and its name where these leave a choice.

    Raises:
        InvalidRequest: FILE_TYPE if it is not what its name says, NOT_UTF8 if it should be text and is not.
    """
    found = sniff(head, whole=whole)
    claimed = by_name(name)
    if claimed in ("", found):
        return found
    if in_one_family(claimed, found):
        return claimed
    if claimed in _PLAIN and is_text(found):
        return claimed
    if claimed in _MARKED and found == "text/plain" and _may_be(claimed, head):
        return claimed
    if is_text(claimed) and found == UNKNOWN:
        raise InvalidRequest(
            f"{name} is named as text but is not UTF-8", reason="NOT_UTF8", remedy="save it as UTF-8 and send it again"
        )
    raise InvalidRequest(
        f"{name} is named as {claimed} but its content is {found}",
        reason="FILE_TYPE",
        remedy="send the right file, or name it after its content",
    )


def _may_be(claimed: str, head: bytes) -> bool:
    text = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if claimed == "application/json":
        return re.match(rb'[\[{"\-0-9]|true|false|null', text) is not None
    return text.startswith(b"<")
