"""Names for files that others named: inside their folder, without anything a system reads in its own way."""

import mimetypes
import re
import unicodedata
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import unquote

LONGEST_STEM, LONGEST_EXTENSION = 100, 20
"""In bytes: file systems take 255, and a name may be made of two such with a number."""

_UNSAFE = re.compile(r'[<>:"|?*/\\]+')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)
_ENCODED = re.compile(r"filename\*=UTF-8''([^;\s]+)", re.IGNORECASE)
_PLAIN = re.compile(r'filename="([^"]*)"', re.IGNORECASE)


def safe_name(name: str, media_type: str) -> str:
    """A file name without folders, control characters, line ends or anything a system reads in its own way."""
    last = PureWindowsPath(PurePosixPath(name).name).name
    printable = "".join(filter(_shows, unicodedata.normalize("NFC", last)))
    path = PurePosixPath(_UNSAFE.sub("_", printable).strip(" ."))
    stem = _cut(path.stem, LONGEST_STEM).strip(" .") or "artifact"
    extension = path.suffix or mimetypes.guess_extension(media_type) or ""
    return ("_" if _RESERVED.fullmatch(stem) else "") + stem + _cut(extension, LONGEST_EXTENSION).rstrip(" .")


def disposed(header: str) -> str:
    """The name in a Content-Disposition."""
    if encoded := _ENCODED.search(header):
        return unquote(encoded[1])
    plain = _PLAIN.search(header)
    return plain[1] if plain else ""


def _shows(letter: str) -> bool:
    kind = unicodedata.category(letter)
    return kind[0] != "C" and kind not in ("Zl", "Zp")


def _cut(text: str, most: int) -> str:
    """As much of it as so many bytes hold."""
    return text.encode()[:most].decode(errors="ignore")
