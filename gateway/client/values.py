"""Values of named inputs: files, text or JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from gateway.client.attachments import Attachment, FileId, Part, Url
from gateway.client.models import Artifact, KeptFile


@dataclass(frozen=True)
class Json:
    """A JSON value; needed for a JSON string, because a str is text."""

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
"""A file (Path, bytes, FileId, Url, or an artifact of an earlier run), text as a str, otherwise JSON.

Json marks a value as JSON.
"""


def part_or_value(given: Given, name: str) -> Part | dict[str, Any]:
    """Converts a value to a file part, or to an inline value."""
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
