"""Finds links and images in Markdown that is still streaming."""

import re
from dataclasses import dataclass

MAX_LABEL_LENGTH, MAX_TARGET_LENGTH = 200, 1_000
"""Limits in characters; longer links are treated as plain text."""

MAX_NESTED_BRACKETS = 8
"""Limit of nested brackets in a link."""

_INSIDE = re.compile(r"\s*(?:<([^<>\n]*)>|(\S*))(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*")


class NeedsMoreText(Exception):
    """More text is needed to decide."""


@dataclass(frozen=True, slots=True)
class Link:
    """A Markdown link.

    Args:
        label: Markdown between the brackets.
        target: URL or path, without title.
        end: position after the link.
    """

    label: str
    target: str
    end: int


def link_at(text: str, at: int, *, complete: bool) -> Link | None:
    """Returns the link or image that starts at a position; None if there is none.

    Args:
        text: received so far.
        at: position of its "[", or of the "!" before it.
        complete: no more text follows.

    Raises:
        NeedsMoreText: the following text decides whether it is a link.
    """
    opened = text.index("[", at)
    closed = _closing(text, opened, MAX_LABEL_LENGTH, complete=complete)
    if closed is None or not _has_target(text, closed, complete=complete):
        return None
    end = _closing(text, closed + 1, MAX_TARGET_LENGTH, complete=complete)
    inside = _INSIDE.fullmatch(text, closed + 2, end) if end else None
    if end is None or inside is None:
        return None
    return Link(text[opened + 1 : closed], inside[1] or inside[2] or "", end + 1)


def _has_target(text: str, closed: int, *, complete: bool) -> bool:
    if closed + 1 == len(text) and not complete:
        raise NeedsMoreText
    return text[closed + 1 : closed + 2] == "("


def _closing(text: str, opened: int, longest: int, *, complete: bool) -> int | None:
    """Returns the position of the matching bracket; None if it is missing, too far or in another paragraph."""
    opening, closing_text = text[opened], ")" if text[opened] == "(" else "]"
    depth, at, last = 0, opened, opened + longest
    while at < len(text) and at <= last:
        letter = text[at]
        depth += (letter == opening) - (letter == closing_text)
        if depth == 0:
            return at
        if depth > MAX_NESTED_BRACKETS or text.startswith("\n\n", at):
            return None
        at += 2 if letter == "\\" else 1
    if at >= len(text) and at <= last and not complete:
        raise NeedsMoreText
    return None
