"""Incremental, tolerant parser of plans: returns each task object when its closing brace arrives."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from services.llm.prompt import replace_surrogates
from services.planner.plan import NoteKind

MAX_ANSWER_LENGTH = 524_288
"""Limit of characters read from one answer."""

MAX_OBJECT_LENGTH = 65_536
"""Limit of characters of one task object."""

MAX_DEPTH = 32
"""Limit of nested objects and lists."""

MAX_NOTES = 32
"""Limit of notes, and of descriptions of dropped text."""

MAX_NOTE_LENGTH = 1_000
"""Limit of characters of one note."""

TASK = ("task", "tool", "name")
"""Keys of a task's name, best first; the others count only next to arguments."""

ARGUMENTS = ("args", "arguments", "parameters", "inputs")
"""Keys of a task's arguments."""

_PLANS = {"tasks", "plan", "steps", "notes"}
"""Keys of a plan."""

_NOTES = {"unmapped": NoteKind.UNMAPPED, "clarify": NoteKind.CLARIFY, "chat": NoteKind.CHAT}


@dataclass(frozen=True, slots=True)
class RawTask:
    """A task object as written; values are valid JSON (finite numbers, no lone surrogates)."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RawNote:
    """A note of the LLM; source is the part of the request it covers, or empty."""

    kind: NoteKind
    text: str
    source: str = ""


# ---------------------------------------------------------------- characters

_LONGEST_STRING = 65_536
"""Limit of characters stored of one string; the rest is skipped."""

_MOST_SPACE = 1_024
"""Limit of whitespace stored after a quote that may not end its string."""


class _Place(Enum):
    """Syntactic position, which decides what a character means."""

    PROSE = auto()
    KEY = auto()
    VALUE = auto()
    DEEP = auto()
    """Below the maximum depth: only brackets and string ends matter."""


class _Token(NamedTuple):
    """One of { } [ ] , : or a "string" or a "bare" word."""

    kind: str
    text: str = ""


_Step = tuple[int, _Token | None]

_PUNCTUATION = "{}[],:"
_SPACE = re.compile(r"\s+")
_PROSE = re.compile(r"[{\[\]<]")
_TAG = re.compile(r"[a-z/]", re.IGNORECASE)
_THOUGHTS = ("think", "thinking")
_LONGEST_TAG = 12

_QUOTES = {'"': '"', "'": "'", "“": '”“"', "”": '”“"'}
_INSIDE = {closers: re.compile(f"[\\\\{closers}]") for closers in set(_QUOTES.values())}
_BARE = {_Place.VALUE: re.compile(r"[,}\]\n]")} | dict.fromkeys((_Place.KEY, _Place.DEEP), re.compile(r"[:,{}\[\]\n]"))
_AFTER_STRING = {_Place.KEY: ":,}", _Place.VALUE: ",}]", _Place.DEEP: ":,}]"}
_COMMENT = re.compile(r"\s//")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HEX_DIGITS = 4
_HEX = re.compile(r"[0-9a-f]", re.IGNORECASE)


class _Lexer:
    """The parser must set `place` after each token."""

    def __init__(self) -> None:
        self.place = _Place.PROSE
        self.consumed = 0
        self.listing = False
        """Whether the prose is inside an open list."""
        self._state: Callable[[str, int], _Step] = self._between
        self._stored: list[str] = []
        self._remaining = _LONGEST_STRING
        self._closers = ""
        self._pending = ""

    @property
    def idle(self) -> bool:
        """Whether no reasoning is open."""
        return self._state != self._reasoning

    def tokens(self, delta: str) -> Iterator[_Token]:
        """Adds text; yields the tokens that it completes."""
        at = 0
        while at < len(delta):
            following, token = self._state(delta, at)
            self.consumed += following - at
            at = following
            if token:
                yield token

    def _between(self, text: str, at: int) -> _Step:
        if self.place is _Place.PROSE:
            return self._prose(text, at)
        char = text[at]
        if space := _SPACE.match(text, at):
            return space.end(), None
        if char in _PUNCTUATION:
            return at + 1, _Token(char)
        self._stored, self._remaining = [], _LONGEST_STRING
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
            return found.end(), _Token("{")
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
        return end.start(), _Token("bare", replace_surrogates(word)) if word else None

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
            self._pending += char if len(self._pending) < _MOST_SPACE else ""
            return at + 1, None
        self._state = self._between
        if char in _AFTER_STRING[self.place] or (char == "/" and self._pending[1:]):
            return at, _Token("string", replace_surrogates("".join(self._stored)))
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


# ---------------------------------------------------------------- objects


@dataclass(slots=True)
class _Frame:
    """An open object or list."""

    is_list: bool
    is_outside_task: bool
    """Whether it is outside any task, so that an object in it may be one."""
    start: int
    fields: dict[str, object] = field(default_factory=dict)
    items: list[object] = field(default_factory=list)
    key: str | None = None
    has_colon: bool = False
    """Whether the colon after the last key, or its value, has been read."""
    is_container: bool = False
    """Whether it contains the plan, so that it is not a task itself."""
    invalid_reason: str = ""
    """Why it is dropped; empty if it is valid."""

    @property
    def place(self) -> _Place:
        return _Place.VALUE if self.is_list or (self.key is not None and self.has_colon) else _Place.KEY


class PlanReader:
    """Finds tasks and notes in the text of an LLM. Never raises; time is linear, memory bounded.

    Accepts arrays, enclosing objects, JSON lines, code fences, prose, reasoning, comments, Python literals, other
    quotes or none, trailing commas, and a missing bracket at the end of a task.
    """

    def __init__(self) -> None:
        self.notes: list[RawNote] = []
        self.dropped: list[str] = []
        """Descriptions of text that was ignored."""
        self._lexer = _Lexer()
        self._stack: list[_Frame] = []
        self._skipped_depth = 0
        self._ready: list[RawTask] = []

    def feed(self, delta: str) -> list[RawTask]:
        """Adds text; returns the tasks that it completes."""
        remaining = MAX_ANSWER_LENGTH - self._lexer.consumed
        if len(delta) > remaining:
            self._drop(f"the answer is longer than {MAX_ANSWER_LENGTH} characters; the rest was not read")
        for token in self._lexer.tokens(delta[:remaining]):
            self._handle(token)
            self._lexer.place = self._place()
        ready, self._ready = self._ready, []
        return ready

    @property
    def is_incomplete(self) -> bool:
        """Whether the text ends inside an object or list, whose missing rest is not guessed."""
        return bool(self._stack) or self._lexer.listing or not self._lexer.idle

    # ------------------------------------------------------------ tokens

    def _place(self) -> _Place:
        if self._skipped_depth:
            return _Place.DEEP
        return self._stack[-1].place if self._stack else _Place.PROSE

    def _handle(self, token: _Token) -> None:
        if self._skipped_depth:
            self._skipped_depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token.kind, 0)
        elif token.kind in "{[":
            self._open(token.kind)
        elif token.kind in "}]":
            self._close(is_list=token.kind == "]")
        elif token.kind == "string":
            self._word(token.text, token.text)
        elif token.kind == "bare":
            self._word(token.text, literal(token.text))
        else:
            self._punctuation(token.kind)

    def _punctuation(self, kind: str) -> None:
        top = self._stack[-1]
        if top.is_list:
            return
        if kind == ":":
            top.has_colon = top.key is not None
        else:
            top.key, top.has_colon = None, False

    def _word(self, text: str, value: object) -> None:
        top = self._stack[-1]
        if top.place is _Place.KEY:
            top.key, top.has_colon = text, False
        else:
            self._add_value(top, value)

    def _add_value(self, top: _Frame, value: object) -> None:
        if top.is_list:
            if not top.is_outside_task:
                top.items.append(value)
        elif not top.invalid_reason:
            top.fields[top.key or ""] = value
        top.key, top.has_colon = None, False
        self._check_length()

    # ------------------------------------------------------------ brackets

    def _open(self, kind: str) -> None:
        top = self._stack[-1] if self._stack else None
        if top and top.place is _Place.KEY and kind == "{" and task_name(top.fields) and top.is_outside_task:
            self._end_frame()  # its closing brace is missing
            top = self._stack[-1] if self._stack else None
        is_outside_task = top is None or (top.is_outside_task and (top.is_list or (top.key or "").lower() in _PLANS))
        if len(self._stack) >= MAX_DEPTH:
            self._skipped_depth = 1
            self._invalidate(f"an object is nested more than {MAX_DEPTH} deep")
            return
        self._stack.append(_Frame(kind == "[", is_outside_task, self._lexer.consumed))

    def _close(self, *, is_list: bool) -> None:
        """Closes the innermost frame of this kind, and all frames inside it."""
        while self._stack:
            same = self._stack[-1].is_list == is_list
            self._end_frame()
            if same:
                return

    def _end_frame(self) -> None:
        self._check_length()
        frame = self._stack.pop()
        if frame.key and not frame.has_colon:
            frame.fields.setdefault(frame.key, None)
        top = self._stack[-1] if self._stack else None
        if not frame.is_outside_task:
            if top:
                self._add_value(top, frame.items if frame.is_list else frame.fields)
            return
        if not frame.is_list:
            self._finish_object(frame)
        if top:
            self._release_frame(top, frame)

    def _release_frame(self, top: _Frame, frame: _Frame) -> None:
        """Excludes the length of a closed object from the length of the objects around it."""
        for around in self._stack:
            around.start += self._lexer.consumed - frame.start
        top.is_container = top.is_container or frame.is_container or not frame.is_list
        top.key, top.has_colon = None, False

    def _finish_object(self, frame: _Frame) -> None:
        if frame.invalid_reason:
            self._drop(frame.invalid_reason + ", which was dropped")
        elif not frame.is_container and task_name(frame.fields):
            self._ready.append(RawTask(frame.fields))
        else:
            self._note(frame.fields)

    # ------------------------------------------------------------ limits and notes

    def _check_length(self) -> None:
        frame = next(frame for frame in reversed(self._stack) if frame.is_outside_task)
        if self._lexer.consumed - frame.start > MAX_OBJECT_LENGTH:
            self._invalidate(f"an object is longer than {MAX_OBJECT_LENGTH} characters")

    def _invalidate(self, reason: str) -> None:
        outermost = max(at for at, frame in enumerate(self._stack) if frame.is_outside_task)
        for frame in self._stack[outermost:]:
            frame.invalid_reason = frame.invalid_reason or reason
            frame.fields.clear()
            frame.items.clear()

    def _note(self, fields: Mapping[str, object]) -> None:
        source = str(fields.get("source") or "")[:MAX_NOTE_LENGTH]
        kind = _NOTES.get(str(fields.get("note", "")).strip().lower())
        text = fields.get("text")
        if kind and isinstance(text, str) and text.strip() and len(self.notes) < MAX_NOTES:
            self.notes.append(RawNote(kind, text.strip()[:MAX_NOTE_LENGTH], source))

    def _drop(self, reason: str) -> None:
        if len(self.dropped) < MAX_NOTES and reason not in self.dropped:
            self.dropped.append(reason)


_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def task_name(fields: Mapping[str, object]) -> str:
    """Returns the name in a task object; empty if it is not a task."""
    keys = TASK if any(key in fields for key in ARGUMENTS) else TASK[:1]
    return next((name.strip() for key in keys if isinstance(name := fields.get(key), str) and name.strip()), "")


def literal(word: str) -> object:
    """Converts an unquoted word: a number, a constant, or else text."""
    if word.lower() in _CONSTANTS:
        return _CONSTANTS[word.lower()]
    if _INTEGER.fullmatch(word):
        return int(word)
    if _NUMBER.fullmatch(word) and math.isfinite(number := float(word)):
        return number
    return word
