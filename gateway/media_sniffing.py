"""Media type detection by content."""
# ruff: noqa: PLR2004  # constants of the file formats

import codecs
import re
from collections.abc import Callable

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
