"""Media types: detected from a file's content and name, and the modalities of ports that accept files of them."""
# ruff: noqa: PLR2004  # constants of the file formats

import codecs
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from services.common.errors import InvalidRequest

HEAD_BYTES = 4096
"""Number of leading bytes that detection needs."""

UNKNOWN = "application/octet-stream"

_RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_BRANDS = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "image/heic"),
    **dict.fromkeys((b"M4A ", b"M4B ", b"M4P ", b"F4A "), "audio/mp4"),
    b"qt  ": "video/quicktime",
}
_OGG = {b"\x01vorbis": "audio/ogg", b"OpusHead": "audio/ogg", b"\x7fFLAC": "audio/ogg", b"Speex": "audio/ogg"}

_FIXED: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"II+\0", "image/tiff"),
    (b"\0\0\1\0", "image/x-icon"),
    (b"%PDF-", "application/pdf"),
    (b"fLaC\0", "audio/flac"),
    (b"MThd\0", "audio/midi"),
    (b"#!AMR", "audio/amr"),
    (b"PK\3\4", "application/zip"),
    (b"PK\5\6", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"\x7fELF", "application/x-executable"),
)


def _riff(head: bytes) -> str | None:
    return _RIFF.get(head[8:12]) if head[:4] in (b"RIFF", b"RF64") else None


def _aiff(head: bytes) -> str | None:
    return "audio/aiff" if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC") else None


def _gif(head: bytes) -> str | None:
    return "image/gif" if head[:6] in (b"GIF87a", b"GIF89a") and b"\0" in head[:64] else None


def _bmp(head: bytes) -> str | None:
    return "image/bmp" if head[:2] == b"BM" and head[6:10] == b"\0\0\0\0" else None


def _iso_media(head: bytes) -> str | None:
    if head[4:8] in (b"moov", b"mdat", b"wide"):
        return "video/quicktime"
    if head[4:8] != b"ftyp":
        return None
    length = min(int.from_bytes(head[:4], "big"), len(head))
    compatible = [head[at : at + 4] for at in range(16, length, 4)]
    if head[8:12] in (b"mif1", b"msf1") and b"avif" in compatible:
        return "image/avif"
    return _BRANDS.get(head[8:12], "video/mp4")


def _matroska(head: bytes) -> str | None:
    if head[:4] != b"\x1a\x45\xdf\xa3":
        return None
    if b"webm" not in head[:64]:
        return "video/x-matroska"
    return "audio/webm" if b"A_" in head and b"V_" not in head else "video/webm"


def _ogg(head: bytes) -> str | None:
    if head[:5] != b"OggS\0":
        return None
    return next((kind for mark, kind in _OGG.items() if head.startswith(mark, 28)), "video/ogg")


def _mpeg_audio(head: bytes) -> str | None:
    if head[:3] == b"ID3" and len(head) >= 10 and head[3] in (2, 3, 4) and max(head[6:10]) < 0x80:
        return "audio/mpeg"
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    if head[1] & 0xF6 == 0xF0:
        return "audio/aac"
    layer, bitrate, rate = head[1] & 0x06, head[2] >> 4, head[2] >> 2 & 3
    return "audio/mpeg" if layer in (2, 4) and 0 < bitrate < 15 and rate < 3 else None


_PROBES: tuple[Callable[[bytes], str | None], ...] = (
    lambda head: next((kind for mark, kind in _FIXED if head.startswith(mark)), None),
    _riff,
    _aiff,
    _gif,
    _bmp,
    _iso_media,
    _matroska,
    _ogg,
    _mpeg_audio,
)

_CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_MARKUP: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<(!doctype\s+html|html)[\s>]", re.IGNORECASE), "text/html"),
    (re.compile(r"<svg[\s>]", re.IGNORECASE), "image/svg+xml"),
    (re.compile(r"<\?xml\s", re.IGNORECASE), "application/xml"),
)


def sniff(head: bytes, *, whole: bool) -> str:
    """Returns the media type of content.

    Args:
        head: the first HEAD_BYTES, or the whole content.
        whole: head is the whole content.
    """
    binary = next(filter(None, (probe(head) for probe in _PROBES)), None)
    if binary:
        return binary
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=whole)
    except UnicodeDecodeError:
        return UNKNOWN
    if _CONTROL.search(text):
        return UNKNOWN
    if not text.lstrip().startswith("<"):
        return "text/plain"
    return next((kind for pattern, kind in _MARKUP if pattern.search(text)), "text/plain")


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


_BY_TYPE: dict[str, tuple[str, ...]] = {
    "application/pdf": ("IMAGE",),
    "application/ogg": ("AUDIO", "VIDEO"),
    "application/json": ("JSON", "TABLE", "TEXT"),
    "application/xml": ("TEXT",),
    "text/csv": ("TABLE", "TEXT"),
    "text/tab-separated-values": ("TABLE", "TEXT"),
    "application/vnd.ms-excel": ("TABLE",),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("TABLE",),
    "application/vnd.oasis.opendocument.spreadsheet": ("TABLE",),
}
_BY_FAMILY: dict[str, tuple[str, ...]] = {
    "image": ("IMAGE",),
    "audio": ("AUDIO",),
    "video": ("VIDEO",),
    "text": ("TEXT",),
}


def modality_names(media_type: str) -> tuple[str, ...]:
    """Modalities of a file, the most natural first; empty for an unknown type.

    Args:
        media_type: a MIME type, with or without parameters.

    Returns:
        Names of the protos' enum Modality without their prefix, such as IMAGE. A PDF is accepted wherever an image is.
    """
    media_type = media_type.partition(";")[0].strip().lower()
    return _BY_TYPE.get(media_type) or _BY_FAMILY.get(media_type.partition("/")[0], ())
