"""Shortens long requests for analysis, and restores the omitted text in the arguments of the plan.

The middles of long quotations, which are content, are omitted first, then the middle of the request, because
instructions are at its beginning or end. A private-use character replaces each omitted piece.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from services.planner.embedded.quotations import quotations
from services.planner.plan import Argument, Draft, Many, Note, NoteKind, Text
from services.planner.request import Request

MAX_QUOTATIONS = 1_000
"""Limit of quotations that are shortened."""

QUOTED_CHARACTERS = 1_000
"""Characters kept of one quotation."""

_PLACEHOLDERS = range(0xE100, 0xF000)
"""Private-use characters; those up to U+E0FF have other uses in the planner."""

_WORD_CHARACTERS = 60
"""Maximum distance by which a cut moves back to a word boundary."""

_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A shortened request."""

    request: Request
    omitted: Mapping[str, str]
    """Omitted pieces by their placeholder characters."""
    middle: str = ""
    """Placeholder of the middle of the request; empty if the middle was not omitted."""

    def covers(self, draft: Draft) -> bool:
        """Whether the omitted text is content, so that analysing it would not change the plan.

        The middle of the request is content if a task of the plan takes it as text.
        """
        if not self.middle:
            return True
        arguments = (argument for task in draft.tasks for argument in task.arguments.values())
        return any(self.middle in text for argument in arguments for text in _texts(argument))

    def restore(self, draft: Draft) -> Draft:
        """Restores the omitted text in the arguments; elsewhere an ellipsis replaces it."""
        if not self.omitted:
            return draft
        omitted_text = {ord(mark): text for mark, text in self.omitted.items()}
        placeholders = dict.fromkeys(omitted_text, _ELLIPSIS)
        tasks = tuple(
            replace(
                task,
                arguments={port: _translate(one, omitted_text) for port, one in task.arguments.items()},
                parameters_json=task.parameters_json.translate(placeholders),
                source=task.source.translate(placeholders),
            )
            for task in draft.tasks
        )
        notes = [
            replace(one, text=one.text.translate(placeholders), span=one.span.translate(placeholders))
            for one in draft.notes
        ]
        if not self.covers(draft):
            notes.append(_truncation_note(len(self.omitted[self.middle])))
        return replace(draft, tasks=tasks, notes=tuple(notes))


def excerpt(request: Request, characters: int) -> Excerpt:
    """Shortens a request to about so many characters; a shorter request is returned unchanged."""
    text = request.text
    if len(text) <= characters:
        return Excerpt(request, {})
    used = set(text)
    free = (mark for code in _PLACEHOLDERS if (mark := chr(code)) not in used)
    middle = next(free, "")
    if not middle:
        return Excerpt(request, {})
    omitted: dict[str, str] = {}
    shorter = _with_short_quotations(text, free, omitted)
    if len(shorter) <= characters:
        return Excerpt(_with_text(request, shorter), omitted)
    start = _between_words(shorter, characters // 2)
    end = _between_words(shorter, len(shorter) - characters // 2)
    omitted[middle] = shorter[start:end].translate({ord(mark): piece for mark, piece in omitted.items()})
    return Excerpt(_with_text(request, shorter[:start] + middle + shorter[end:]), omitted, middle)


def _with_short_quotations(text: str, free: Iterator[str], omitted: dict[str, str]) -> str:
    pieces: list[str] = []
    position, half = 0, QUOTED_CHARACTERS // 2
    for quotation in islice(quotations(text), MAX_QUOTATIONS):
        start, end = quotation.inner_start + half, quotation.inner_end - half
        if end > start and (mark := next(free, "")):
            omitted[mark] = text[start:end]
            pieces += (text[position:start], mark)
            position = end
    return "".join((*pieces, text[position:]))


def _between_words(text: str, position: int) -> int:
    return next(
        (index for index in range(position, max(position - _WORD_CHARACTERS, 0), -1) if text[index].isspace()), position
    )


def _with_text(request: Request, text: str) -> Request:
    *earlier, last = request.conversation
    return replace(request, conversation=(*earlier, replace(last, text=text)))


def _texts(argument: Argument) -> Iterator[str]:
    for one in argument.items if isinstance(argument, Many) else (argument,):
        if isinstance(one, Text):
            yield one.text


def _translate(argument: Argument, omitted_text: Mapping[int, str]) -> Argument:
    if isinstance(argument, Many):
        return Many(
            tuple(Text(one.text.translate(omitted_text)) if isinstance(one, Text) else one for one in argument.items)
        )
    return Text(argument.text.translate(omitted_text)) if isinstance(argument, Text) else argument


def _truncation_note(characters: int) -> Note:
    text = (
        f"{characters} characters in the middle of the request were not searched for what to do: put long texts in"
        " quotation marks or send them as files, and ask for the rest in another request."
    )
    return Note(NoteKind.TRIMMED, text)
