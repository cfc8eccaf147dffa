"""A file that says what the items are: a table (.csv, .tsv), or a JSON object a line (.jsonl)."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from gateway.cli.batch.parameter_values import Read, of_json, of_text
from gateway.cli.errors import USAGE, Problem

SEPARATORS = ",;\t"
"""Of cells: that which the first line has most of."""


@dataclass(frozen=True)
class Row:
    """What one line says, by parameter.

    Args:
        place: where it stands, in words.
        line: its number.
        cells: text of a table; whatever JSON is.
        read: makes values of them.
    """

    place: str
    line: int
    cells: Mapping[str, Any]
    read: Read


def rows(file: Path) -> Iterator[Row]:
    """Its lines, those without content left out.

    Raises:
        Problem: it cannot be read, or is not what its name says.
    """
    read = {".csv": _table, ".tsv": _table, ".jsonl": _objects, ".ndjson": _objects}.get(file.suffix.lower())
    if read is None:
        remedy = "a table is called .csv, a JSON object a line .jsonl"
        raise Problem(f"{file} has no known ending", remedy=remedy, status=USAGE)
    with _opened(file) as lines:
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
            raise _wrong(file, table.line_num, f"has {len(cells)} cells, the first line {len(columns)}")
        filled = {name: cell for name, cell in zip(columns, cells, strict=True) if cell}
        yield Row(_place(file, table.line_num), table.line_num, filled, of_text)


def _columns(file: Path, named: Sequence[str]) -> list[str]:
    columns = [name.strip() for name in named]
    if not columns:
        raise Problem(f"{file} is empty", remedy="its first line names the columns", status=USAGE)
    for place, name in enumerate(columns, start=1):
        if not name:
            raise _wrong(file, 1, f"gives column {place} no name")
        if columns.index(name) != place - 1:
            raise _wrong(file, 1, f"names column {name} twice")
    return columns


def _objects(file: Path, lines: TextIO) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line, object_pairs_hook=_unrepeated)
        except _Repeated as repeated:
            raise _wrong(file, number, f"names {repeated} twice") from repeated
        except (ValueError, RecursionError) as error:
            raise _wrong(file, number, f"is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise _wrong(file, number, "is not a JSON object")
        told = {name: value for name, value in content.items() if value is not None}
        yield Row(_place(file, number), number, told, of_json)


class _Repeated(Exception):
    """An object has two values of this name."""


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Repeated(name)
        found[name] = value
    return found


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            yield lines
    except OSError as error:
        raise Problem(f"cannot read {file}: {error.strerror}", remedy="check --items", status=USAGE) from error
    except UnicodeDecodeError as error:
        raise Problem(f"{file} is not UTF-8", remedy="save it as UTF-8", status=USAGE) from error
    except csv.Error as error:
        raise Problem(f"{file} is no table: {error}", remedy="check its quotes", status=USAGE) from error


def _place(file: Path, line: int) -> str:
    return f"line {line} of {file}"


def _wrong(file: Path, line: int, what: str) -> Problem:
    return Problem(f"{_place(file, line)} {what}", remedy="check --items", status=USAGE)
