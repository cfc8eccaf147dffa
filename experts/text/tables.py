"""Reads tables from CSV, with any usual delimiter, and from JSON."""

import csv
from dataclasses import dataclass
from io import StringIO
from typing import Any

from experts.host.handler import Media
from services.common import strict_json
from services.common.errors import InvalidRequest

_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Table:
    """Table of strings with a header."""

    header: list[str]
    rows: list[list[str]]

    @property
    def size(self) -> int:
        return len(self.header) * len(self.rows)


def read_table(table: Media, port: str = "table") -> Table:
    """Reads a CSV or JSON file.

    Raises:
        InvalidRequest: naming the port, the file is not a supported table.
    """
    if table.media_type.startswith("application/vnd"):
        raise _invalid_table_error(port, "spreadsheets are not supported", "save it as CSV")
    try:
        text = table.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _invalid_table_error(port, "it is not UTF-8 text", "save it as UTF-8") from None
    rows = _parse_json(text, port) if table.media_type == "application/json" else _parse_csv(text, port)
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if len(rows) < 2:  # noqa: PLR2004  # a header and one row
        raise _invalid_table_error(port, "it has no rows below its header", "send a header and at least one row")
    width = max(len(row) for row in rows)
    header, *body = ([cell.strip() for cell in row] + [""] * (width - len(row)) for row in rows)
    return Table(_deduplicate(header), body)


def _parse_csv(text: str, port: str) -> list[list[str]]:
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    try:
        return list(csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise _invalid_table_error(port, str(error), "send valid CSV") from None


def _parse_json(text: str, port: str) -> list[list[str]]:
    """Parses [{column: cell}], [[cell]] with a header row, {column: [cell]}, or {"columns": […], "rows": [[cell]]}."""
    try:
        value = strict_json.read(text)
    except ValueError as error:
        raise _invalid_table_error(port, f"it is not JSON: {error}", "send valid JSON") from None
    rows = _to_rows(value)
    if rows is None:
        remedy = "send a list of objects, a list of lists with a header first, or an object of lists by column"
        raise _invalid_table_error(port, "its JSON is not a table", remedy)
    return [[_cell_text(cell) for cell in row] for row in rows]


def _to_rows(value: Any) -> list[list[Any]] | None:
    if isinstance(value, dict):
        header, body = value.get("columns", value.get("header")), value.get("rows", value.get("data"))
        if isinstance(header, list) and isinstance(body, list) and _is_list_of(body, list):
            return [header, *body]
        if value and _is_list_of(list(value.values()), list):
            longest = max(len(column) for column in value.values())
            columns = [[*column, *[None] * (longest - len(column))] for column in value.values()]
            rows: list[list[Any]] = [list(row) for row in zip(*columns, strict=True)]
            return [list(value), *rows]
        return None
    if _is_list_of(value, dict):
        header = list(dict.fromkeys(name for row in value for name in row))
        return [header, *([row.get(name) for name in header] for row in value)]
    return value if _is_list_of(value, list) else None


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(element, kind) for element in value)


def _cell_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else strict_json.write(value)


def _deduplicate(header: list[str]) -> list[str]:
    """Numbers columns without a name or with the name of another."""
    names: list[str] = []
    for number, name in enumerate(header, 1):
        column = name or f"column {number}"
        names.append(f"{column} {number}" if column in names else column)
    return names


def _invalid_table_error(port: str, cause: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"cannot read the table: {cause}", port=port, remedy=remedy)
