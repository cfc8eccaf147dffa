"""Tables that a spreadsheet opens."""

import re

_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def harmless(text: str) -> str:
    """A cell that is not taken for a formula: what would be one begins with an apostrophe."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
