"""Incremental lexer of tolerant JSON; the tokens do not depend on how the text is split."""

import re
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from services.llm.prompt import replace_surrogates

LONGEST = 65_536
"""Limit of characters stored of one string; the rest is skipped."""


MOST_SPACE = 1_024
"""Limit of whitespace stored after a quote that may not end its string."""


class Place(Enum):
    """Syntactic position, which decides what a character means."""

    PROSE = auto()
    KEY = auto()
    VALUE = auto()
    DEEP = auto()
    """Below the maximum depth: only brackets and string ends matter."""


class Token(NamedTuple):
    """One of { } [ ] , : or a "string" or a "bare" word."""

    kind: str
    text: str = ""


_Step = tuple[int, Token | None]

_PUNCTUATION = "{}[],:"
_SPACE = re.compile(r"\s+")
_PROSE = re.compile(r"[{\[\]<]")
_TAG = re.compile(r"[a-z/]", re.IGNORECASE)
_THOUGHTS = ("think", "thinking")
_LONGEST_TAG = 12

_QUOTES = {'"': '"', "'": "'", "“": '”“"', "”": '”“"'}
_INSIDE = {closers: re.compile(f"[\\\\{closers}]") for closers in set(_QUOTES.values())}
_BARE = {Place.VALUE: re.compile(r"[,}\]\n]")} | dict.fromkeys((Place.KEY, Place.DEEP), re.compile(r"[:,{}\[\]\n]"))
_AFTER_STRING = {Place.KEY: ":,}", Place.VALUE: ",}]", Place.DEEP: ":,}]"}
_COMMENT = re.compile(r"\s//")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HEX_DIGITS = 4
_HEX = re.compile(r"[0-9a-f]", re.IGNORECASE)


class Lexer:
    """The parser must set `place` after each token."""

    def __init__(self) -> None:
        self.place = Place.PROSE
        self.consumed = 0
        self.listing = False
        """Whether the prose is inside an open list."""
        self._state: Callable[[str, int], _Step] = self._between
        self._stored: list[str] = []
        self._remaining = LONGEST
        self._closers = ""
        self._pending = ""

    @property
    def idle(self) -> bool:
        """Whether no reasoning is open."""
        return self._state != self._reasoning

    def tokens(self, delta: str) -> Iterator[Token]:
        """Adds text; yields the tokens that it completes."""
        at = 0
        while at < len(delta):
            following, token = self._state(delta, at)
            self.consumed += following - at
            at = following
            if token:
                yield token

    def _between(self, text: str, at: int) -> _Step:
        if self.place is Place.PROSE:
            return self._prose(text, at)
        char = text[at]
        if space := _SPACE.match(text, at):
            return space.end(), None
        if char in _PUNCTUATION:
            return at + 1, Token(char)
        self._stored, self._remaining = [], LONGEST
        if char in _QUOTES:
            self._closers, self._state = _QUOTES[char], self._string
            return at + 1, None
        self._state = self._comment if char == "/" else self._bare
        return at, None

    # ------------------------------------------------------------ prose, where only the start of an object counts

    def _prose(self, text: str, at: int) -> _Step:
        found = _PROSE.search(text, at)
        if not found:
            return len(text), None
        char = found.group()
        if char == "{":
            return found.end(), Token("{")
        if char == "<":
            self._pending, self._state = "", self._tag
        else:
            self.listing = char == "["
        return found.end(), None

    def _tag(self, text: str, at: int) -> _Step:
        if text[at] == ">" and self._pending in _THOUGHTS:
            self._pending, self._state = "", self._reasoning
            return at + 1, None
        if len(self._pending) == _LONGEST_TAG or not _TAG.match(text, at):
            self._state = self._between
            return at, None
        self._pending += text[at].lower()
        return at + 1, None

    def _reasoning(self, text: str, at: int) -> _Step:
        char = text[at].lower()
        self._pending = "<" if char == "<" else self._pending + char if self._pending else ""
        if len(self._pending) > _LONGEST_TAG:
            self._pending = ""
        if self._pending[2:-1] in _THOUGHTS and self._pending.startswith("</") and char == ">":
            self._state = self._between
        return at + 1, None

    # ------------------------------------------------------------ comments and words

    def _comment(self, text: str, at: int) -> _Step:
        end = text.find("\n", at)
        if end < 0:
            return len(text), None
        self._state = self._between
        return end, None

    def _bare(self, text: str, at: int) -> _Step:
        end = _BARE[self.place].search(text, at)
        self._store(text[at : end.start() if end else len(text)])
        if not end:
            return len(text), None
        self._state = self._between
        word = _COMMENT.split("".join(self._stored), maxsplit=1)[0].strip()
        return end.start(), Token("bare", replace_surrogates(word)) if word else None

    def _string(self, text: str, at: int) -> _Step:
        found = _INSIDE[self._closers].search(text, at)
        self._store(text[at : found.start() if found else len(text)])
        if not found:
            return len(text), None
        self._pending = "" if found.group() == "\\" else found.group()
        self._state = self._escape if found.group() == "\\" else self._closing
        return found.end(), None

    def _closing(self, text: str, at: int) -> _Step:
        """Ends a string only if the next character can follow a string; this accepts quotes that are not escaped."""
        char = text[at]
        if char.isspace():
            self._pending += char if len(self._pending) < MOST_SPACE else ""
            return at + 1, None
        self._state = self._between
        if char in _AFTER_STRING[self.place] or (char == "/" and self._pending[1:]):
            return at, Token("string", replace_surrogates("".join(self._stored)))
        self._store(self._pending)
        self._state = self._string
        return at, None

    def _escape(self, text: str, at: int) -> _Step:
        char = text[at]
        if char == "u":
            self._pending, self._state = "", self._digits
            return at + 1, None
        self._store(_ESCAPES.get(char, "\\" + char if char.isalnum() else char))
        self._state = self._string
        return at + 1, None

    def _digits(self, text: str, at: int) -> _Step:
        is_digit = bool(_HEX.match(text[at]))
        self._pending += text[at] if is_digit else ""
        if is_digit and len(self._pending) < _HEX_DIGITS:
            return at + 1, None
        self._store(chr(int(self._pending, 16)) if is_digit else f"\\u{self._pending}")
        self._state = self._string
        return at + is_digit, None

    def _store(self, text: str) -> None:
        if text and self._remaining > 0:
            self._stored.append(text[: self._remaining])
        self._remaining -= len(text)
