"""Tables that a spreadsheet opens."""

import re

_UNSEEN = r"[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
"""What a spreadsheet leaves out before it looks whether a cell is a formula."""
_FORMULA = re.compile(rf"[\t\r\n]|{_UNSEEN}*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Full-width signs are taken for the others where East Asian text is typed."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def harmless(text: str) -> str:
    """A cell that is not taken for a formula: what would be one begins with an apostrophe."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
