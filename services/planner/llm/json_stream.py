"""What a model writes, read as it comes: each task's object as soon as its closing brace is there."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.planner.llm.json_lexer import Lexer, Place, Token
from services.planner.plan import NoteKind

MOST_TEXT = 524_288
"""Most characters of one answer that are read."""

MOST_OBJECT = 65_536
"""Most characters of one task's object."""

DEEPEST = 32
"""Most objects and lists within each other."""

MOST_NOTES = 32
"""Most remarks, and most sentences on what was dropped."""

NOTE_LENGTH = 1_000
"""Most characters of one remark."""

TASK = ("task", "task_name", "tool", "name")
"""Keys under which a task's name is found, the best first; the last two only beside arguments."""

ARGUMENTS = ("args", "arguments", "parameters", "params", "inputs", "input")
"""Keys under which its arguments are found."""

_PLANS = {"tasks", "plan", "steps", "task_list", "nodes", "notes", "result", "output", "answer", ""}
_NOTES = {"unmapped": NoteKind.UNMAPPED, "clarify": NoteKind.CLARIFY, "chat": NoteKind.CHAT}
_WORDS = {"true": True, "false": False} | dict.fromkeys(("none", "null", "undefined", "nan", "infinity", "-infinity"))
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class RawTask:
    """One task's object as it was written, its values JSON's (finite numbers, no lone surrogates)."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RawNote:
    """A remark of the model; source is the part of the request it is about, or empty."""

    kind: NoteKind
    text: str
    source: str = ""


@dataclass(slots=True)
class _Frame:
    """An object or list that is still open."""

    listing: bool
    outer: bool
    """Not within a task: an object here may be one."""
    start: int
    fields: dict[str, object] = field(default_factory=dict)
    items: list[object] = field(default_factory=list)
    key: str | None = None
    valued: bool = False
    """Its last key has its value, or its colon has come and the value is next: see `place`."""
    holds: bool = False
    """It holds the plan, so it is no task itself."""
    spoilt: str = ""
    """Why it is dropped."""

    @property
    def place(self) -> Place:
        return Place.VALUE if self.listing or (self.key is not None and self.valued) else Place.KEY


class Reader:
    """Finds tasks and remarks in a model's text. Never raises; time is linear, memory bounded.

    Understands arrays, objects around them, JSON lines, fences, prose, comments, Python's literals, quotes of any kind
    or none, trailing and missing commas, brackets that were forgotten.
    """

    def __init__(self) -> None:
        self.notes: list[RawNote] = []
        self.dropped: list[str] = []
        """Sentences on what was not read."""
        self._lexer = Lexer()
        self._stack: list[_Frame] = []
        self._buried = 0
        self._ready: list[RawTask] = []

    def feed(self, delta: str) -> list[RawTask]:
        """The tasks that this piece of text completes."""
        room = MOST_TEXT - self._lexer.consumed
        if len(delta) > room:
            self._drop(f"the answer is longer than {MOST_TEXT} characters; the rest was not read")
        for token in self._lexer.tokens(delta[:room]):
            self._take(token)
            self._lexer.place = self._place()
        ready, self._ready = self._ready, []
        return ready

    @property
    def unfinished(self) -> bool:
        """Whether the text so far stops inside an object or list; what it cuts there is never guessed at."""
        return bool(self._stack) or self._lexer.listing or not self._lexer.idle

    # ------------------------------------------------------------ tokens

    def _place(self) -> Place:
        if self._buried:
            return Place.DEEP
        return self._stack[-1].place if self._stack else Place.PROSE

    def _take(self, token: Token) -> None:
        if self._buried:
            self._buried += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token.kind, 0)
        elif token.kind in "{[":
            self._open(token.kind)
        elif token.kind in "}]":
            self._close(listing=token.kind == "]")
        elif token.kind == "`":
            self._close_all()
        elif token.kind == "string":
            self._word(token.text, token.text)
        elif token.kind == "bare":
            self._word(token.text, literal(token.text))
        else:
            self._punctuation(token.kind)

    def _punctuation(self, kind: str) -> None:
        top = self._stack[-1]
        if top.listing:
            return
        if kind == ":":
            top.valued = top.key is not None
        else:
            top.key, top.valued = None, False

    def _word(self, text: str, value: object) -> None:
        top = self._stack[-1]
        if top.place is Place.KEY:
            top.key, top.valued = text.strip(" \"'"), False
        else:
            self._put(top, value)

    def _put(self, top: _Frame, value: object) -> None:
        if top.listing:
            if not top.outer:
                top.items.append(value)
        elif not top.spoilt:
            top.fields[top.key or ""] = value
        top.key, top.valued = None, False
        self._measure()

    # ------------------------------------------------------------ brackets

    def _open(self, kind: str) -> None:
        top = self._stack[-1] if self._stack else None
        if top and top.place is Place.KEY:
            if kind == "[":
                return
            if named(top.fields) and top.outer:  # its own brace was forgotten
                self._end()
                top = self._stack[-1] if self._stack else None
        outer = top is None or (top.outer and (top.listing or (top.key or "").lower() in _PLANS))
        if len(self._stack) >= DEEPEST:
            self._buried = 1
            self._spoil(f"an object is nested more than {DEEPEST} deep")
            return
        self._stack.append(_Frame(kind == "[", outer, self._lexer.consumed))

    def _close(self, *, listing: bool) -> None:
        """Ends the innermost of its kind, and what was left open in it."""
        while self._stack:
            same = self._stack[-1].listing == listing
            self._end()
            if same:
                return

    def _close_all(self) -> None:
        while self._stack:
            self._end()

    def _end(self) -> None:
        self._measure()
        frame = self._stack.pop()
        if frame.key and not frame.valued:
            frame.fields.setdefault(frame.key, None)
        top = self._stack[-1] if self._stack else None
        if not frame.outer:
            if top:
                self._put(top, frame.items if frame.listing else frame.fields)
            return
        if not frame.listing:
            self._finished(frame)
        if top:
            self._shift(top, frame)

    def _shift(self, top: _Frame, frame: _Frame) -> None:
        """What stood in it counts for itself."""
        for around in self._stack:
            around.start += self._lexer.consumed - frame.start
        top.holds = top.holds or frame.holds or not frame.listing
        top.key, top.valued = None, False

    def _finished(self, frame: _Frame) -> None:
        if frame.spoilt:
            self._drop(frame.spoilt + ", which was dropped")
        elif not frame.holds and named(frame.fields):
            self._ready.append(RawTask(frame.fields))
        else:
            self._note(frame.fields)

    # ------------------------------------------------------------ limits and remarks

    def _measure(self) -> None:
        frame = next(frame for frame in reversed(self._stack) if frame.outer)
        if self._lexer.consumed - frame.start > MOST_OBJECT:
            self._spoil(f"an object is longer than {MOST_OBJECT} characters")

    def _spoil(self, why: str) -> None:
        outermost = max(at for at, frame in enumerate(self._stack) if frame.outer)
        for frame in self._stack[outermost:]:
            frame.spoilt = frame.spoilt or why
            frame.fields.clear()
            frame.items.clear()

    def _note(self, fields: Mapping[str, object]) -> None:
        source = str(fields.get("source") or "")[:NOTE_LENGTH]
        said = _NOTES.get(str(fields.get("note", "")).strip().lower())
        written = [(said, fields.get("text"))] if said else [(_NOTES[key], fields.get(key)) for key in _NOTES]
        for kind, text in written:
            if isinstance(text, str) and text.strip() and len(self.notes) < MOST_NOTES:
                self.notes.append(RawNote(kind, text.strip()[:NOTE_LENGTH], source))

    def _drop(self, why: str) -> None:
        if len(self.dropped) < MOST_NOTES and why not in self.dropped:
            self.dropped.append(why)


def named(fields: Mapping[str, object]) -> str:
    """The name of a task's object; empty if it is none."""
    keys = TASK if any(key in fields for key in ARGUMENTS) else TASK[:2]
    return next((name.strip() for key in keys if isinstance(name := fields.get(key), str) and name.strip()), "")


def literal(word: str) -> object:
    """What a word without quotes means: a number or constant, or else text."""
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _WHOLE.fullmatch(word):
        return int(word)
    if _NUMBER.fullmatch(word) and math.isfinite(number := float(word)):
        return number
    return word
