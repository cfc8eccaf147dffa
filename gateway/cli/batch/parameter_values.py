"""What one parameter of one item is: a file, a text or JSON."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.cli.batch.parameters import JSON, TEXT, UNKNOWN
from gateway.client.attachments import FileId, Url
from gateway.client.values import Given, Json

_FILE_ID = re.compile(r"file_[0-9A-Za-z]+")
_URL = re.compile(r"https?://", re.IGNORECASE)

Read = Callable[[Any, str, Path], Given]
"""Makes a value of what is told, by the modality of its parameter, with paths that begin in a folder."""


class Unfit(ValueError):
    """It is not what its parameter takes."""


def of_text(text: str, modality: str, folder: Path) -> Given:
    """What a cell of a table says.

    Args:
        text: the cell.
        modality: what its parameter takes; unknown: an existing file is one, else it is text.
        folder: against which paths are read.

    Raises:
        Unfit: the parameter takes JSON, and this is none.
    """
    if modality == TEXT:
        return text
    if modality == JSON:
        return _json(text)
    if modality == UNKNOWN and not _is_file(text, folder):
        return text
    return source(text, folder)


def of_json(content: Any, modality: str, folder: Path) -> Given:
    """What a value in a line of JSON says: as a cell, if it is a string.

    An object with one key of text, json and file says itself what it is.

    Raises:
        Unfit: a file is named by something that is no string.
    """
    match content:
        case {"text": str() as text} if len(content) == 1:
            return text
        case {"json": inner} if len(content) == 1:
            return _as_given(inner)
        case {"file": str() as named} if len(content) == 1:
            return source(named, folder)
        case str() if modality != JSON:
            return of_text(content, modality, folder)
    if modality not in (JSON, UNKNOWN):
        raise Unfit(f"has {json.dumps(content)[:60]}, where a string is to be")
    return _as_given(content)


def source(named: str, folder: Path) -> Path | FileId | Url:
    """A file: the id of one that the gateway keeps, a URL, or a path."""
    if _FILE_ID.fullmatch(named):
        return FileId(named)
    if _URL.match(named):
        return Url(named)
    return folder / named


def _is_file(text: str, folder: Path) -> bool:
    if _FILE_ID.fullmatch(text) or _URL.match(text):
        return True
    try:
        return (folder / text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a null in it
        return False


def _json(text: str) -> Given:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unfit(f"is not JSON: {error}") from error
    return _as_given(content)


def _as_given(content: Any) -> Given:
    try:
        json.dumps(content, allow_nan=False)
    except ValueError as error:
        raise Unfit("has a number that JSON has not") from error
    given: Given = Json(content) if isinstance(content, str) else content
    return given
