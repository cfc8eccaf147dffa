"""Reads the items of a batch from a table (.csv, .tsv) or from JSON lines (.jsonl)."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from gateway.cli.batch.parameters import Read, of_json, of_text
from gateway.cli.errors import USAGE, Problem

SEPARATORS = ",;\t"
"""Possible separators of cells; the most frequent one in the first line is used."""


@dataclass(frozen=True)
class Row:
    """One line, with cells by parameter.

    Args:
        location: location for error messages.
        line: line number.
        cells: text of a table, or any JSON values.
        read: converts a cell to a value.
    """

    location: str
    line: int
    cells: Mapping[str, Any]
    read: Read


def rows(file: Path) -> Iterator[Row]:
    """Reads the lines of a file, without empty ones.

    Raises:
        Problem: the file cannot be read, or is invalid for its suffix.
    """
    read = {".csv": _table, ".tsv": _table, ".jsonl": _objects, ".ndjson": _objects}.get(file.suffix.lower())
    if read is None:
        remedy = "use .csv for a table, .jsonl for JSON lines"
        raise Problem(f"{file} has an unknown suffix", remedy=remedy, status=USAGE)
    with _open(file) as lines:
        yield from read(file, lines)


def _table(file: Path, lines: TextIO) -> Iterator[Row]:
    heading = lines.readline()
    lines.seek(0)
    table = csv.reader(lines, delimiter=max(SEPARATORS, key=heading.count), strict=True)
    columns = _columns(file, next(table, []))
    for cells in table:
        if not any(cells):
            continue
        if len(cells) != len(columns):
            raise _wrong(file, table.line_num, f"has {len(cells)} cells, the header {len(columns)}")
        non_empty = {name: cell for name, cell in zip(columns, cells, strict=True) if cell}
        yield Row(_location(file, table.line_num), table.line_num, non_empty, of_text)


def _columns(file: Path, names: Sequence[str]) -> list[str]:
    columns = [name.strip() for name in names]
    if not columns:
        raise Problem(f"{file} is empty", remedy="the first line must name the columns", status=USAGE)
    for number, name in enumerate(columns, start=1):
        if not name:
            raise _wrong(file, 1, f"has no name for column {number}")
        if columns.index(name) != number - 1:
            raise _wrong(file, 1, f"has the column {name} twice")
    return columns


def _objects(file: Path, lines: TextIO) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line, object_pairs_hook=_without_duplicates)
        except _DuplicateName as duplicate:
            raise _wrong(file, number, f"has the key {duplicate} twice") from duplicate
        except (ValueError, RecursionError) as error:
            raise _wrong(file, number, f"is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise _wrong(file, number, "is not a JSON object")
        non_null = {name: value for name, value in content.items() if value is not None}
        yield Row(_location(file, number), number, non_null, of_json)


class _DuplicateName(Exception):
    """An object has a key twice."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _DuplicateName(name)
        found[name] = value
    return found


@contextmanager
def _open(file: Path) -> Iterator[TextIO]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            yield lines
    except OSError as error:
        raise Problem(f"cannot read {file}: {error.strerror}", remedy="check --items", status=USAGE) from error
    except UnicodeDecodeError as error:
        raise Problem(f"{file} is not UTF-8", remedy="save it as UTF-8", status=USAGE) from error
    except csv.Error as error:
        raise Problem(f"{file} is not a valid table: {error}", remedy="check its quotes", status=USAGE) from error


def _location(file: Path, line: int) -> str:
    return f"line {line} of {file}"


def _wrong(file: Path, line: int, what: str) -> Problem:
    return Problem(f"{_location(file, line)} {what}", remedy="check --items", status=USAGE)
