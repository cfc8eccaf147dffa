"""What a model writes, read as it comes: each task's object as soon as its closing brace is there."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.planner.plan import NoteKind


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


class Reader:
    """Finds tasks and remarks in a model's text. Never raises; time is linear, memory bounded."""

    def __init__(self) -> None:
        self.notes: list[RawNote] = []
        self.dropped: list[str] = []

    def feed(self, delta: str) -> list[RawTask]:
        """The tasks that this piece of text completes."""
        raise NotImplementedError

    def close(self) -> list[RawTask]:
        """What the end of the text completes; an object that it cuts is dropped, never guessed at."""
        raise NotImplementedError

    @property
    def unfinished(self) -> bool:
        """Whether the text so far stops inside an object or list."""
        raise NotImplementedError
