"""Incremental, tolerant parser of plans: returns each task object when its closing brace arrives."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.planner.llm.json_lexer import Lexer, Place, Token
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
_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


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
    def place(self) -> Place:
        return Place.VALUE if self.is_list or (self.key is not None and self.has_colon) else Place.KEY


class PlanReader:
    """Finds tasks and notes in the text of an LLM. Never raises; time is linear, memory bounded.

    Accepts arrays, enclosing objects, JSON lines, code fences, prose, reasoning, comments, Python literals, other
    quotes or none, trailing commas, and a missing bracket at the end of a task.
    """

    def __init__(self) -> None:
        self.notes: list[RawNote] = []
        self.dropped: list[str] = []
        """Descriptions of text that was ignored."""
        self._lexer = Lexer()
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

    def _place(self) -> Place:
        if self._skipped_depth:
            return Place.DEEP
        return self._stack[-1].place if self._stack else Place.PROSE

    def _handle(self, token: Token) -> None:
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
        if top.place is Place.KEY:
            top.key, top.has_colon = text.strip(" \"'"), False
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
        if top and top.place is Place.KEY and kind == "{" and task_name(top.fields) and top.is_outside_task:
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
