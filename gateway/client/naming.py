"""Names for files that others named: inside their folder, without anything a system reads in its own way."""

import mimetypes
import re
import unicodedata
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import unquote

LONGEST_STEM = 100
"""In bytes: file systems take 255 with the extension."""

_UNSAFE = re.compile(r'[<>:"|?*/\\]+')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)
_ENCODED = re.compile(r"filename\*=UTF-8''([^;\s]+)", re.IGNORECASE)
_PLAIN = re.compile(r'filename="([^"]*)"', re.IGNORECASE)


def safe_name(name: str, media_type: str) -> str:
    """A file name without folders, control characters or anything a system reads in its own way."""
    last = PureWindowsPath(PurePosixPath(name).name).name
    printable = "".join(
        letter for letter in unicodedata.normalize("NFC", last) if unicodedata.category(letter)[0] != "C"
    )
    path = PurePosixPath(_UNSAFE.sub("_", printable).strip(" ."))
    stem = path.stem.encode()[:LONGEST_STEM].decode(errors="ignore").strip(" .") or "artifact"
    extension = path.suffix or mimetypes.guess_extension(media_type) or ""
    return ("_" if _RESERVED.fullmatch(stem) else "") + stem + extension[:LONGEST_STEM]


def disposed(header: str) -> str:
    """The name in a Content-Disposition."""
    if encoded := _ENCODED.search(header):
        return unquote(encoded[1])
    plain = _PLAIN.search(header)
    return plain[1] if plain else ""
