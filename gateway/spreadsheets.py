"""Rows of batch results for spreadsheets: one row per item, safe from formula injection."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LEADING_FIELDS = ("index", "name", "state", "run_id")
"""Columns before the outputs."""
ERROR_FIELDS = ("reason", "message", "remedy")
"""Columns of the item's error."""
TRAILING_FIELDS = ("seconds", "input_tokens", "output_tokens", "cost")

_IGNORED = r"[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
"""Characters that spreadsheets skip before they check whether a cell is a formula."""
_FORMULA = re.compile(rf"[\t\r\n]|{_IGNORED}*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Full-width signs are treated like ASCII ones by spreadsheets with East Asian input."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def escape_formula(text: str) -> str:
    """Prefixes text that a spreadsheet would interpret as a formula with an apostrophe."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def header(outputs: Sequence[str]) -> list[str]:
    """Column names: the paths of the values in the JSON result."""
    return [
        *LEADING_FIELDS,
        *(f"outputs.{name}" for name in outputs),
        *(f"error.{field}" for field in ERROR_FIELDS),
        *TRAILING_FIELDS,
    ]


def row(result: Mapping[str, Any], outputs: Sequence[str], cell: Callable[[Any], Any]) -> list[Any]:
    """Returns the cells of an item.

    Args:
        result: the item's JSON result.
        outputs: outputs that have columns.
        cell: converts an output value to a cell.
    """
    error = result["error"] or {}
    cells = (
        *(result[field] for field in LEADING_FIELDS),
        *(cell(result["outputs"].get(name)) for name in outputs),
        *(error.get(field) for field in ERROR_FIELDS),
        *(result[field] for field in TRAILING_FIELDS),
    )
    return [escape_formula(each) if isinstance(each, str) else each for each in cells]
