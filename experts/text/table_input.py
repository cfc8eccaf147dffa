"""Tables as people send them: CSV and its relatives, or JSON."""

import csv
from dataclasses import dataclass
from io import StringIO
from typing import Any

from experts.host import strict_json
from experts.host.handler import Media
from services.common.errors import InvalidRequest

_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Grid:
    """A table of texts, its header apart."""

    header: list[str]
    rows: list[list[str]]

    @property
    def size(self) -> int:
        return len(self.header) * len(self.rows)


def read_grid(table: Media, port: str = "table") -> Grid:
    """What is in a file.

    Raises:
        InvalidRequest: naming the port, it is no table that can be read here.
    """
    if table.media_type.startswith("application/vnd"):
        raise _unreadable(port, "a spreadsheet is not read here", "save it as CSV")
    try:
        text = table.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable(port, "it is not UTF-8 text", "save it as UTF-8") from None
    rows = _from_json(text, port) if table.media_type == "application/json" else _from_csv(text, port)
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if len(rows) < 2:  # noqa: PLR2004  # a header and something under it
        raise _unreadable(port, "it has no rows under its header", "send a header and at least one row")
    width = max(len(row) for row in rows)
    header, *body = ([cell.strip() for cell in row] + [""] * (width - len(row)) for row in rows)
    return Grid(_distinct(header), body)


def _from_csv(text: str, port: str) -> list[list[str]]:
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    try:
        return list(csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise _unreadable(port, str(error), "send valid CSV") from None


def _from_json(text: str, port: str) -> list[list[str]]:
    """Of [{column: cell}], [[cell]] with a header first, {column: [cell]}, or {"columns": […], "rows": [[cell]]}."""
    try:
        value = strict_json.read(text)
    except ValueError as error:
        raise _unreadable(port, f"it is not JSON: {error}", "send valid JSON") from None
    rows = _rows(value)
    if rows is None:
        remedy = "send a list of objects, a list of lists with a header first, or an object of lists by column"
        raise _unreadable(port, "its JSON is no table", remedy)
    return [[_cell(cell) for cell in row] for row in rows]


def _rows(value: Any) -> list[list[Any]] | None:
    if isinstance(value, dict):
        header, body = value.get("columns", value.get("header")), value.get("rows", value.get("data"))
        if isinstance(header, list) and isinstance(body, list) and _all(body, list):
            return [header, *body]
        if value and _all(list(value.values()), list):
            longest = max(len(column) for column in value.values())
            columns = [[*column, *[None] * (longest - len(column))] for column in value.values()]
            rows: list[list[Any]] = [list(row) for row in zip(*columns, strict=True)]
            return [list(value), *rows]
        return None
    if _all(value, dict):
        header = list(dict.fromkeys(name for row in value for name in row))
        return [header, *([row.get(name) for name in header] for row in value)]
    return value if _all(value, list) else None


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, kind) for one in value)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else strict_json.write(value)


def _distinct(header: list[str]) -> list[str]:
    """Columns without a name, or with that of another, get a number."""
    names: list[str] = []
    for number, name in enumerate(header, 1):
        named = name or f"column {number}"
        names.append(f"{named} {number}" if named in names else named)
    return names


def _unreadable(port: str, cause: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"the table cannot be read: {cause}", port=port, remedy=remedy)
