"""What is to be sent with a request: looked at before anything is."""

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from gateway.client.errors import InvalidRequest
from gateway.client.models import Artifact, KeptFile

FORM_BYTES = 16_000_000
"""Files that are more together are uploaded one by one before the run begins."""

_FILE_ID = re.compile(r"file_[0-9A-Za-z]+")
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True)
class Attachment:
    """Something to send, under a name.

    Args:
        name: by whose ending the gateway may tell what it is.
        content: the bytes, or the file that has them.
    """

    name: str
    content: bytes | Path

    @property
    def size(self) -> int:
        """Bytes.

        Raises:
            InvalidRequest: it cannot be sent.
        """
        size = len(self.content) if isinstance(self.content, bytes) else _size(self.content)
        if not size:
            raise _unfit(f"{self.name} is empty", "EMPTY_FILE", "send a file with something in it")
        return size

    def open(self) -> BinaryIO:
        """Raises InvalidRequest if the file cannot be read."""
        if isinstance(self.content, bytes):
            return BytesIO(self.content)
        try:
            return self.content.open("rb")
        except OSError as error:
            raise _unreadable(self.content, error) from error


@dataclass(frozen=True)
class FileId:
    """A file that the gateway keeps already."""

    id: str


@dataclass(frozen=True)
class Url:
    """A file that the gateway is to fetch."""

    url: str


Source = str | PathLike[str] | bytes | Attachment | Artifact | KeptFile
"""A file: its path, its bytes, its id (file_…) at the gateway, its http(s) URL, or what an earlier run made."""

Part = Attachment | FileId | Url | Artifact


def parts(sources: Sequence[Source]) -> list[Part]:
    """What each source is.

    Raises:
        InvalidRequest: EMPTY_FILE or FILE, for the first that cannot be sent.
    """
    found = [_part(source, number) for number, source in enumerate(sources, start=1)]
    for part in found:
        if isinstance(part, Attachment):
            _ = part.size
    return found


def in_one_form(found: Sequence[Part]) -> Sequence[Attachment] | None:
    """The parts, if they are few enough bytes to go with the request."""
    attached = [part for part in found if isinstance(part, Attachment)]
    fits = len(attached) == len(found) and sum(part.size for part in attached) <= FORM_BYTES
    return attached if fits else None


def _part(source: Source, number: int) -> Part:
    match source:
        case Attachment() | Artifact():
            return source
        case KeptFile():
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
        raise _unfit(f"{file} is a folder", "FILE", "send its files one by one")
    raise _unfit(f"{file} is no regular file", "FILE", "write what comes out of it to a file, and send that")


def _unreadable(file: Path, error: OSError) -> InvalidRequest:
    return _unfit(f"cannot read {file}: {error.strerror}", "FILE", "check the path")


def _unfit(message: str, code: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, code=code, remedy=remedy)
