"""Tables that a spreadsheet opens: what came of a batch, with a row an item."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

BEFORE = ("index", "name", "state", "run_id")
"""What stands in a row before its outputs, and in a line of JSON beside them."""
REASONS = ("reason", "message", "remedy")
"""Of its error."""
AFTER = ("seconds", "input_tokens", "output_tokens", "cost")

_UNSEEN = r"[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
"""What a spreadsheet leaves out before it looks whether a cell is a formula."""
_FORMULA = re.compile(rf"[\t\r\n]|{_UNSEEN}*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Full-width signs are taken for the others where East Asian text is typed."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def harmless(text: str) -> str:
    """A cell that is not taken for a formula: what would be one begins with an apostrophe."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def header(outputs: Sequence[str]) -> list[str]:
    """The names of columns: the paths of what stands in them in JSON."""
    return [*BEFORE, *(f"outputs.{name}" for name in outputs), *(f"error.{field}" for field in REASONS), *AFTER]


def row(told: Mapping[str, Any], outputs: Sequence[str], cell: Callable[[Any], Any]) -> list[Any]:
    """The cells of an item.

    Args:
        told: what came of it, as a line of JSON has it.
        outputs: which of its outputs have columns.
        cell: what is written of an output.
    """
    error = told["error"] or {}
    cells = (
        *(told[field] for field in BEFORE),
        *(cell(told["outputs"].get(name)) for name in outputs),
        *(error.get(field) for field in REASONS),
        *(told[field] for field in AFTER),
    )
    return [harmless(each) if isinstance(each, str) else each for each in cells]
