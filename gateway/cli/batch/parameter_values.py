"""Converts cells and JSON to values of a parameter: a file, text or JSON."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.cli.batch.parameters import JSON, TEXT, UNKNOWN
from gateway.client.attachments import FileId, Url
from gateway.client.options import Given, Json

_FILE_ID = re.compile(r"file_[0-9A-Za-z]+")
_URL = re.compile(r"https?://", re.IGNORECASE)

Read = Callable[[Any, str, Path], Given]
"""Converts content to a value, by the modality of its parameter; paths are relative to a folder."""


class InvalidValue(ValueError):
    """A value does not fit its parameter."""


def of_text(text: str, modality: str, folder: Path) -> Given:
    """Converts the cell of a table.

    Args:
        text: content of the cell.
        modality: modality of the parameter; if unknown, the path of an existing file is a file, all else is text.
        folder: base of relative paths.

    Raises:
        InvalidValue: the parameter takes JSON, and the cell is not JSON.
    """
    if modality == TEXT:
        return text
    if modality == JSON:
        return _json(text)
    if modality == UNKNOWN and not _is_file(text, folder):
        return text
    return source(text, folder)


def of_json(content: Any, modality: str, folder: Path) -> Given:
    """Converts a JSON value; a string is converted like a cell.

    An object with the single key text, json or file states its type itself.

    Raises:
        InvalidValue: a file is not given as a string.
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
        raise InvalidValue(f"has {json.dumps(content)[:60]}, expected a string")
    return _as_given(content)


def source(named: str, folder: Path) -> Path | FileId | Url:
    """Converts the id of a stored file, a URL or a path."""
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
    except (OSError, ValueError):  # too long for a path, or contains a null byte
        return False


def _json(text: str) -> Given:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"is not JSON: {error}") from error
    return _as_given(content)


def _as_given(content: Any) -> Given:
    try:
        json.dumps(content, allow_nan=False)
    except ValueError as error:
        raise InvalidValue("has a number that JSON cannot express") from error
    given: Given = Json(content) if isinstance(content, str) else content
    return given
