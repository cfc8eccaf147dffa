"""Sanitizes file names from other systems."""

import mimetypes
import re
import unicodedata
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import unquote

MAX_STEM, MAX_EXTENSION = 100, 20
"""Limits in bytes: file systems allow 255, and a name may combine two parts and a number."""

_UNSAFE = re.compile(r'[<>:"|?*/\\]+')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)
_ENCODED = re.compile(r"filename\*=UTF-8''([^;\s]+)", re.IGNORECASE)
_PLAIN = re.compile(r'filename="([^"]*)"', re.IGNORECASE)


def safe_name(name: str, media_type: str) -> str:
    """Returns a name without folders, control characters, line ends or characters reserved by a system."""
    last = PureWindowsPath(PurePosixPath(name).name).name
    printable = "".join(filter(_is_printable, unicodedata.normalize("NFC", last)))
    path = PurePosixPath(_UNSAFE.sub("_", printable).strip(" ."))
    stem = _truncate(path.stem, MAX_STEM).strip(" .") or "artifact"
    extension = path.suffix or mimetypes.guess_extension(media_type) or ""
    return ("_" if _RESERVED.fullmatch(stem) else "") + stem + _truncate(extension, MAX_EXTENSION).rstrip(" .")


def name_from_disposition(header: str) -> str:
    """Returns the file name of a Content-Disposition header."""
    if encoded := _ENCODED.search(header):
        return unquote(encoded[1])
    plain = _PLAIN.search(header)
    return plain[1] if plain else ""


def _is_printable(letter: str) -> bool:
    kind = unicodedata.category(letter)
    return kind[0] != "C" and kind not in ("Zl", "Zp")


def _truncate(text: str, most: int) -> str:
    """Truncates a text to a number of UTF-8 bytes."""
    return text.encode()[:most].decode(errors="ignore")
