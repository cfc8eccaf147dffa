"""Finds quoted evidence in a text: an answer counts only if the words that it quotes are there."""

import re

_ELLIPSIS = re.compile(r"\s*[\[(]?(?:\.{3,}|…)[\])]?\s*")
_QUOTATION_MARKS = "\"'`“”„‟‘’‚«»‹›"
_ANY_MARK = f"[{_QUOTATION_MARKS}]"
_DASHES = "-‐‑‒–—"
_ANY_DASH = f"[{_DASHES}]"
_FIRST_UNSPACED = 0x0E00
"""Thai and the scripts after it: Thai, Lao, Chinese, Japanese, Korean."""


def find_quotation(quotation: str, text: str) -> tuple[int, int] | None:
    """Returns the span of quoted words in a text; None if they are not all there, in order.

    White space, case, and the form of quotation marks and dashes may differ; an ellipsis stands for any words.
    """
    parts = [part for part in _ELLIPSIS.split(quotation.strip().strip(_QUOTATION_MARKS)) if part]
    start = end = -1
    for part in parts:
        match = re.compile(_pattern(part), re.IGNORECASE).search(text, max(end, 0))
        if match is None:
            return None
        start, end = (match.start() if start < 0 else start), match.end()
    return (start, end) if parts else None


def _pattern(part: str) -> str:
    """Returns a regular expression for the words, which match only as whole words."""
    words = r"\s+".join("".join(map(_character, word)) for word in part.split())
    before, after = (r"(?<!\w)" if _is_spaced(part[0]) else ""), (r"(?!\w)" if _is_spaced(part[-1]) else "")
    return f"{before}{words}{after}"


def _is_spaced(character: str) -> bool:
    """Whether it belongs to a script that puts spaces between words."""
    return character.isalnum() and ord(character) < _FIRST_UNSPACED


def _character(character: str) -> str:
    if character in _QUOTATION_MARKS:
        return _ANY_MARK
    return _ANY_DASH if character in _DASHES else re.escape(character)
