"""Downloads artifacts to files: complete, with safe names, and without overwriting other files."""

import hashlib
import mimetypes
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO
from urllib.parse import unquote

from gateway.client.errors import Damaged
from gateway.client.models import Artifact

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


_PART = 206


class Download:
    """Receives the bytes of an artifact; resumes after a broken connection.

    Args:
        artifact: expected artifact.
        file: target file.
    """

    def __init__(self, artifact: Artifact, file: BinaryIO) -> None:
        self._artifact = artifact
        self._file = file
        self._digest, self._received = hashlib.sha256(), 0

    @property
    def headers(self) -> dict[str, str]:
        """Request headers for the remaining bytes."""
        return {"Range": f"bytes={self._received}-"} if self._received else {}

    def begin(self, status: int) -> None:
        """Starts a reply; a reply that is not partial restarts the download."""
        if status != _PART:
            self._file.seek(0)
            self._file.truncate()
            self._digest, self._received = hashlib.sha256(), 0

    def take(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)
        self._received += len(piece)

    def check(self) -> None:
        """Raises Damaged if the digest differs."""
        if self._digest.hexdigest() != self._artifact.sha256:
            name = self._artifact.name or self._artifact.sha256
            raise Damaged(f"{name} was corrupted in transfer", code="DAMAGED", remedy="download it again")


@dataclass(frozen=True)
class DownloadTarget:
    """Target path of an artifact."""

    path: Path
    exists: bool
    """Whether the file already exists with the same content."""

    @contextmanager
    def create(self) -> Iterator[BinaryIO]:
        """Creates the file; removes it if the block fails."""
        with self.path.open("xb") as file:
            try:
                yield file
            except BaseException:
                self.path.unlink(missing_ok=True)
                raise


def find_target(artifact: Artifact, folder: Path) -> DownloadTarget:
    """Finds the first unused name in a folder, or an existing file with the same content."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in _numbered(folder / safe_name(artifact.name, artifact.media_type)):
        if not (path.exists() or path.is_symlink()):
            return DownloadTarget(path, exists=False)
        if path.is_file() and _digest(path) == artifact.sha256:
            return DownloadTarget(path, exists=True)
    raise AssertionError


def _numbered(path: Path) -> Iterator[Path]:
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
