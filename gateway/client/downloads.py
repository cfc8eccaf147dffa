"""Artifacts become files: whole, under safe names, and never over somebody else's file."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from gateway.client.errors import Damaged
from gateway.client.file_names import safe_name
from gateway.client.models import Artifact

_PART = 206


class Receipt:
    """Takes the bytes of an artifact in; what a broken connection left goes on where it stopped.

    Args:
        artifact: whose digest they must have.
        file: where they go.
    """

    def __init__(self, artifact: Artifact, file: BinaryIO) -> None:
        self._artifact = artifact
        self._file = file
        self._digest, self._received = hashlib.sha256(), 0

    @property
    def headers(self) -> dict[str, str]:
        """By which the rest is asked for."""
        return {"Range": f"bytes={self._received}-"} if self._received else {}

    def begin(self, status: int) -> None:
        """A reply has come; unless it is a part, it is all of it again."""
        if status != _PART:
            self._file.seek(0)
            self._file.truncate()
            self._digest, self._received = hashlib.sha256(), 0

    def take(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)
        self._received += len(piece)

    def check(self) -> None:
        """Raises Damaged if this is not what was asked for."""
        if self._digest.hexdigest() != self._artifact.sha256:
            named = self._artifact.name or self._artifact.sha256
            raise Damaged(f"{named} arrived damaged", code="DAMAGED", remedy="ask again")


@dataclass(frozen=True)
class Place:
    """Where an artifact belongs."""

    path: Path
    is_there: bool
    """Nothing needs to be fetched."""

    @contextmanager
    def arriving(self) -> Iterator[BinaryIO]:
        """A new file, which is removed unless the block ends well."""
        with self.path.open("xb") as file:
            try:
                yield file
            except BaseException:
                self.path.unlink(missing_ok=True)
                raise


def place(artifact: Artifact, folder: Path) -> Place:
    """The first free name in a folder, or the file under such a name that is the artifact."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in _numbered(folder / safe_name(artifact.name, artifact.media_type)):
        if not (path.exists() or path.is_symlink()):
            return Place(path, is_there=False)
        if path.is_file() and _digest(path) == artifact.sha256:
            return Place(path, is_there=True)
    raise AssertionError


def _numbered(path: Path) -> Iterator[Path]:
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
