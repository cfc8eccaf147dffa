"""Links and pictures in Markdown, found in text that is still being written."""

import re
from dataclasses import dataclass

LONGEST_LABEL, LONGEST_TARGET = 200, 1_000
"""Characters a link's parts may have; what is longer is no link."""

MOST_OPEN = 8
"""Brackets within brackets that a link may have."""

_INSIDE = re.compile(r"\s*(?:<([^<>\n]*)>|(\S*))(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*")


class Undecided(Exception):
    """What comes next decides."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it was written.

    Args:
        label: between the brackets, Markdown itself.
        target: where it leads, without title.
        end: the first character behind it.
    """

    label: str
    target: str
    end: int


def link_at(text: str, at: int, *, whole: bool) -> Link | None:
    """The link or picture that begins here.

    Args:
        text: as far as it has come.
        at: of its "[", or of the "!" before it.
        whole: no more text will come.

    Raises:
        Undecided: what comes next decides whether it is one.
    """
    opened = text.index("[", at)
    closed = _closing(text, opened, LONGEST_LABEL, whole=whole)
    if closed is None or not _goes_on(text, closed, whole=whole):
        return None
    end = _closing(text, closed + 1, LONGEST_TARGET, whole=whole)
    inside = _INSIDE.fullmatch(text, closed + 2, end) if end else None
    if end is None or inside is None:
        return None
    return Link(text[opened + 1 : closed], inside[1] or inside[2] or "", end + 1)


def _goes_on(text: str, closed: int, *, whole: bool) -> bool:
    if closed + 1 == len(text) and not whole:
        raise Undecided
    return text[closed + 1 : closed + 2] == "("


def _closing(text: str, opened: int, longest: int, *, whole: bool) -> int | None:
    """Where the bracket that opens here is closed; None: nowhere near, or not before the paragraph ends."""
    opening, closing = text[opened], ")" if text[opened] == "(" else "]"
    depth, at, last = 0, opened, opened + longest
    while at < len(text) and at <= last:
        letter = text[at]
        depth += (letter == opening) - (letter == closing)
        if depth == 0:
            return at
        if depth > MOST_OPEN or text.startswith("\n\n", at):
            return None
        at += 2 if letter == "\\" else 1
    if at >= len(text) and at <= last and not whole:
        raise Undecided
    return None
