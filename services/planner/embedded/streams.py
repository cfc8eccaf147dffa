"""Streams: the values that flow between the tasks of a plan, and the errors for missing ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from services.planner.plan import Note, Single
from services.planner.task_spec import Modality, Spec


@dataclass(frozen=True, slots=True)
class Stream:
    """Values of one kind: an input, pasted text, or an output of a task, once for every copy of the task."""

    modality: Modality
    arguments: tuple[Single, ...]
    producer: str = ""
    """Name of the task that makes it; empty for what was sent."""
    port: str = ""
    finding: bool = False
    """It describes its input (a label, a count, boxes) instead of being a version of it."""
    clause: int = -1
    """Start of the clause that made it."""
    languages: tuple[str, ...] = ()
    """Of each value, where a translation made it."""
    named_languages: tuple[str, ...] = ()
    """Language named next to each value."""
    spoken: bool = False
    """Words of the clause itself, such as a question, which no further task takes."""
    lost: str = ""
    """The words of the step that could not be planned, so that the stream has no values."""

    def gone(self, words: str) -> "Stream":
        """The same stream, if the step of these words could not be planned."""
        return replace(self, lost=words)


class Unplannable(Exception):
    """A step cannot be planned; the note states what is missing, unless one on the same clause does."""

    def __init__(self, note: Note | None) -> None:
        super().__init__(note.text if note else "")
        self.note = note


class MissingInput(Unplannable):
    """An input was not sent."""


class Flow:
    """All streams, the one used or made last at the end."""

    def __init__(self) -> None:
        self._streams: dict[Stream, None] = {}
        self._kinds, self._sent_kinds = set[Modality](), set[Modality]()
        self._shows_only_sent = False

    @contextmanager
    def only_sent(self) -> Iterator[None]:
        """Hides the outputs of tasks within the block."""
        self._shows_only_sent = True
        try:
            yield
        finally:
            self._shows_only_sent = False

    def add(self, stream: Stream) -> None:
        """Adds a stream that a task takes or makes."""
        if stream.spoken:
            return
        self._streams.pop(stream, None)
        self._streams[stream] = None
        self._kinds.add(stream.modality)
        if not stream.producer:
            self._sent_kinds.add(stream.modality)

    def of(self, modality: Modality) -> Iterator[Stream]:
        """The streams of a modality, the latest last."""
        return reversed([*self._latest_first(modality)])

    def latest(self, modality: Modality, fits: Callable[[Stream], bool] | None = None) -> Stream | None:
        return next((stream for stream in self._latest_first(modality) if fits is None or fits(stream)), None)

    def carries(self, argument: Single) -> bool:
        """Whether a task takes this."""
        return any(argument in stream.arguments for stream in self._streams)

    def kinds(self) -> set[Modality]:
        return set(self._sent_kinds if self._shows_only_sent else self._kinds)

    def made_by(self, producer: str) -> list[Stream]:
        """What a kind of task has made, the latest last."""
        return [stream for stream in self._streams if stream.producer == producer]

    def _latest_first(self, modality: Modality) -> Iterator[Stream]:
        shown = (stream for stream in reversed(self._streams) if not (self._shows_only_sent and stream.producer))
        return (stream for stream in shown if stream.modality is modality)


def findings(spec: Spec) -> bool:
    """Whether a task describes its input, in JSON, too."""
    return any(port.modality is Modality.JSON and port.required for port in spec.outputs)


def answers(spec: Spec) -> bool:
    """Whether a task answers a question about its input."""
    return any(port.name == "question" for port in spec.inputs)


def modifies(spec: Spec) -> bool:
    """Whether a task returns a new version of its input."""
    taken = {port.modality for port in spec.inputs if port.required}
    return not findings(spec) and any(port.modality in taken for port in spec.outputs)


def feeds(first: Spec, second: Spec) -> bool:
    """Whether the output of one task is the natural input of another."""
    needed = {port.modality for port in second.inputs if port.required}
    if findings(first):  # a label is spoken or translated, not analysed again
        about_media = any(port.required and port.modality is not Modality.TEXT for port in first.inputs)
        return needed == {Modality.TEXT} and not findings(second) and (about_media or not modifies(second))
    given = {port.modality for port in first.outputs}
    return bool(given & (needed - {Modality.TEXT} or needed))
