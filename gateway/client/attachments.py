"""Files of a request, checked before anything is sent."""

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from gateway.client.errors import InvalidRequest
from gateway.client.models import Artifact, StoredFile

FORM_BYTES = 16_000_000
"""Size limit of the files sent with the request; larger ones are uploaded one by one before."""

_FILE_ID = re.compile(r"file_[0-9A-Za-z]+")
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True)
class Attachment:
    """A file to send.

    Args:
        name: file name; its suffix may determine the media type.
        content: the bytes, or the path of the file.
    """

    name: str
    content: bytes | Path

    @property
    def size(self) -> int:
        """Size in bytes.

        Raises:
            InvalidRequest: the file is empty or cannot be read.
        """
        size = len(self.content) if isinstance(self.content, bytes) else _size(self.content)
        if not size:
            raise _invalid(f"{self.name} is empty", "EMPTY_FILE", "send a file with content")
        return size

    def open(self) -> BinaryIO:
        """Opens the content; raises InvalidRequest if the file cannot be read."""
        if isinstance(self.content, bytes):
            return BytesIO(self.content)
        try:
            return self.content.open("rb")
        except OSError as error:
            raise _unreadable(self.content, error) from error


@dataclass(frozen=True)
class FileId:
    """A file stored at the gateway."""

    id: str


@dataclass(frozen=True)
class Url:
    """A file that the gateway downloads."""

    url: str


Source = str | PathLike[str] | bytes | Attachment | Artifact | StoredFile
"""A file: its path, bytes, id (file_…), http(s) URL, or an artifact of an earlier run."""

Part = Attachment | FileId | Url | Artifact


def parts(sources: Sequence[Source]) -> list[Part]:
    """Converts sources to parts.

    Raises:
        InvalidRequest: EMPTY_FILE or FILE, a file cannot be sent.
    """
    found = [_part(source, number) for number, source in enumerate(sources, start=1)]
    for part in found:
        if isinstance(part, Attachment):
            _ = part.size
    return found


def attachments_in_form(found: Sequence[Part]) -> Sequence[Attachment] | None:
    """The parts as attachments if all of them can be sent with the request; None otherwise."""
    attached = [part for part in found if isinstance(part, Attachment)]
    fits = len(attached) == len(found) and sum(part.size for part in attached) <= FORM_BYTES
    return attached if fits else None


def _part(source: Source, number: int) -> Part:
    match source:
        case Attachment() | Artifact():
            return source
        case StoredFile():
            return source.artifact
        case bytes():
            return Attachment(f"file{number}", source)
        case str() if _FILE_ID.fullmatch(source):
            return FileId(source)
        case str() if _URL.match(source):
            return Url(source)
    return Attachment(Path(source).name, Path(source))


def _size(file: Path) -> int:
    try:
        status = file.stat()
        if stat.S_ISREG(status.st_mode):
            with file.open("rb"):
                return status.st_size
    except OSError as error:
        raise _unreadable(file, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise _invalid(f"{file} is a folder", "FILE", "send its files one by one")
    raise _invalid(f"{file} is not a regular file", "FILE", "copy its content to a regular file")


def _unreadable(file: Path, error: OSError) -> InvalidRequest:
    return _invalid(f"cannot read {file}: {error.strerror}", "FILE", "check the path")


def _invalid(message: str, code: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, code=code, remedy=remedy)
