"""What a named input is given: a file, text or JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from gateway.client.attachments import Attachment, FileId, Part, Url
from gateway.client.models import Artifact, KeptFile


@dataclass(frozen=True)
class Json:
    """JSON, even where it is a string, which would be text."""

    content: Any


Given = (
    PathLike[str]
    | bytes
    | Attachment
    | FileId
    | Url
    | Artifact
    | KeptFile
    | Json
    | str
    | Mapping[str, Any]
    | Sequence[Any]
    | float
    | bool
    | None
)
"""A file (its path as a Path, its bytes, its id, its URL, or what an earlier run made), text as a str, else JSON.

Json says that it is.
"""


def part_or_value(given: Given, name: str) -> Part | dict[str, Any]:
    """A file that is to be sent or named; else what is said in its place."""
    match given:
        case Attachment() | FileId() | Url() | Artifact():
            return given
        case KeptFile():
            return given.artifact
        case bytes():
            return Attachment(name, given)
        case PathLike():
            return Attachment(Path(given).name, Path(given))
        case str():
            return {"text": given}
    return {"json": given.content if isinstance(given, Json) else given}
