"""Quoted stretches of a text, found in time proportional to its length whatever it is made of."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = "```"
_OPENERS = re.compile("[\"“„«`'‘]")
_FENCE_HEAD = re.compile(r"\w*\n")
_SINGLE_ENDS = {"'": re.compile(r"(?<!\s)'(?!\w)"), "‘": re.compile(r"’(?!\w)")}
_ENDS = {
    '"': re.compile('"'),
    "“": re.compile("”"),
    "„": re.compile("[“”]"),
    "«": re.compile("»"),
    "`": re.compile(r"[`\n]"),
}


@dataclass(frozen=True, slots=True)
class Quotation:
    """A quoted stretch with its marks, and within it what is quoted."""

    start: int
    end: int
    inner_start: int
    inner_end: int


def quotations(text: str) -> Iterator[Quotation]:
    """The quotations of a text in its order; they never overlap and are never empty."""
    scanner = _Scanner(text)
    at = 0
    while opener := _OPENERS.search(text, at):
        found = scanner.opened_at(opener.start())
        if found:
            yield found
        at = found.end if found else opener.end()


class _Scanner:
    """Finds where the quotation that begins somewhere ends.

    A search that finds no end is not made again further on: a text of nothing but opening marks would else be read once
    for each of them.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._endless: set[str] = set()
        self._line_end = 0
        self._unclosed = dict.fromkeys(_SINGLE_ENDS, 0)
        """Up to where, within one line, a single quotation mark has no end."""

    def opened_at(self, start: int) -> Quotation | None:
        mark = self._text[start]
        if mark == "`" and (fenced := self._fenced(start)):
            return fenced
        if mark in _SINGLE_ENDS:
            return self._single(start, mark)
        return self._plain(start, mark)

    def _fenced(self, start: int) -> Quotation | None:
        if not self._text.startswith(_FENCE, start) or _FENCE in self._endless:
            return None
        after = start + len(_FENCE)
        head = _FENCE_HEAD.match(self._text, after)
        for inner_start in (head.end(), after) if head else (after,):
            end = self._text.find(_FENCE, inner_start + 1)
            if end >= 0:
                return Quotation(start, end + len(_FENCE), inner_start, end)
        self._endless.add(_FENCE)
        return None

    def _plain(self, start: int, mark: str) -> Quotation | None:
        if mark in self._endless:
            return None
        end = _ENDS[mark].search(self._text, start + 1)
        if end is None:
            self._endless.add(mark)
            return None
        if end.start() == start + 1 or end.group() == "\n":
            return None
        return Quotation(start, end.end(), start + 1, end.start())

    def _single(self, start: int, mark: str) -> Quotation | None:
        """A quotation whose mark is also an apostrophe: in one line, from a word's beginning to a word's end."""
        text = self._text
        inside_word = start > 0 and (text[start - 1] == "'" or _is_word(text[start - 1]))
        if mark == "'" and (inside_word or text[start + 1 : start + 2].isspace()):
            return None
        if start >= self._line_end:
            line_end = text.find("\n", start + 1)
            self._line_end = line_end if line_end >= 0 else len(text)
        if start < self._unclosed[mark]:
            return None
        end = _SINGLE_ENDS[mark].search(text, start + 2, self._line_end)
        if end is None:
            self._unclosed[mark] = self._line_end
            return None
        return Quotation(start, end.end(), start + 1, end.start())


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
