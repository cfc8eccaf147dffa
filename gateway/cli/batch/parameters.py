"""Parameters of the plan of a batch, and conversion of cells and JSON to their values."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.cli.errors import USAGE, Problem
from gateway.client.attachments import FileId, Url
from gateway.client.options import Given, Json

TEXT, JSON, UNKNOWN = "text", "json", ""
"""Modalities of parameters that are not files; UNKNOWN before planning."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of a plan.

    Args:
        plan_name: name of the plan for messages.
        modalities: modalities by parameter, in the plan's order; None before planning, when all names are valid.
        required: names of the required parameters.
    """

    plan_name: str
    modalities: Mapping[str, str] | None = None
    required: Collection[str] = field(default_factory=tuple)

    def knows(self, name: str) -> bool:
        return self.modalities is None or name in self.modalities

    def modality(self, name: str) -> str:
        return (self.modalities or {}).get(name, UNKNOWN)

    def check_name(self, name: str, where: str) -> None:
        """Raises Problem if a parameter is unknown."""
        if not self.knows(name):
            raise Problem(
                f"{where} has {name}, which is not a parameter of {self.plan_name}", remedy=self._summary, status=USAGE
            )

    def check(self, names: Collection[str], where: str) -> None:
        """Raises Problem if a required parameter is missing."""
        if missing := [name for name in self.required if name not in names]:
            raise Problem(f"{where} has no value for {' and '.join(missing)}", remedy=self._summary, status=USAGE)

    def for_files(self, given: Collection[str]) -> str:
        """The parameter that unnamed files are for.

        Args:
            given: parameters that have a value.

        Raises:
            Problem: there is none, or it is ambiguous.
        """
        if self.modalities is None:
            return "file1"
        free = [name for name in self.modalities if name not in given]
        for candidates in (
            [name for name in free if name in self.required],
            [name for name in free if self.modalities[name] not in (TEXT, JSON)],
            free,
        ):
            if len(candidates) == 1:
                return candidates[0]
        if not free:
            raise Problem(f"{self.plan_name} has no parameter for files", remedy=self._summary, status=USAGE)
        raise Problem(
            f"{self.plan_name} has several parameters for files: {' and '.join(free)}",
            remedy="give a CSV with these columns to --items, or set the others with --set",
            status=USAGE,
        )

    @property
    def _summary(self) -> str:
        parameters = (
            f"{name} ({modality})" if modality else name for name, modality in (self.modalities or {}).items()
        )
        return f"its parameters: {', '.join(parameters) or 'none'}"


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
