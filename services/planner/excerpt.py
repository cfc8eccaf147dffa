"""A long request shortened to what can say what is wanted; a plan of it gets the text that was left out back.

Long quotations are content: their middles are left out first. What is still too long loses its own middle, because
instructions stand at the beginning or at the end. One private-use character stands for each piece that was left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from services.planner.embedded.quotations import quotations
from services.planner.plan import Argument, Draft, Many, Note, NoteKind, Text
from services.planner.request import Request

MOST_QUOTATIONS = 1_000
"""Quotations that are looked at."""

QUOTED_CHARACTERS = 1_000
"""Characters of one quotation that stay."""

_PLACEHOLDERS = range(0xE100, 0xF000)
"""Private-use characters; those up to U+E0FF are the planner's own marks."""

_WORD_CHARACTERS = 60
"""How far a cut moves back to stand between two words."""

_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A request in fewer characters."""

    request: Request
    omitted: Mapping[str, str]
    """The pieces left out, by the character that stands for each."""
    middle: str = ""
    """The character that stands for the middle of the request itself; empty if nothing of that was left out."""

    def explains(self, draft: Draft) -> bool:
        """Whether nothing that was left out could say more of what is wanted.

        The middle of the request is content if a task of the plan takes it as a text.
        """
        if not self.middle:
            return True
        arguments = (argument for task in draft.tasks for argument in task.arguments.values())
        return any(self.middle in text for argument in arguments for text in _texts(argument))

    def restored(self, draft: Draft) -> Draft:
        """The plan with the left out text back in the arguments; elsewhere an ellipsis stands for it."""
        if not self.omitted:
            return draft
        whole = {ord(mark): text for mark, text in self.omitted.items()}
        short = dict.fromkeys(whole, _ELLIPSIS)
        tasks = tuple(
            replace(
                task,
                arguments={port: _translated(one, whole) for port, one in task.arguments.items()},
                parameters_json=task.parameters_json.translate(short),
                source=task.source.translate(short),
            )
            for task in draft.tasks
        )
        notes = [replace(one, text=one.text.translate(short), span=one.span.translate(short)) for one in draft.notes]
        if not self.explains(draft):
            notes.append(_unread(len(self.omitted[self.middle])))
        return replace(draft, tasks=tasks, notes=tuple(notes))


def excerpt(request: Request, characters: int) -> Excerpt:
    """The request in about so many characters; all of it if it has no more."""
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
    at, half = 0, QUOTED_CHARACTERS // 2
    for quotation in islice(quotations(text), MOST_QUOTATIONS):
        start, end = quotation.inner_start + half, quotation.inner_end - half
        if end > start and (mark := next(free, "")):
            omitted[mark] = text[start:end]
            pieces += (text[at:start], mark)
            at = end
    return "".join((*pieces, text[at:]))


def _between_words(text: str, at: int) -> int:
    return next((place for place in range(at, max(at - _WORD_CHARACTERS, 0), -1) if text[place].isspace()), at)


def _with_text(request: Request, text: str) -> Request:
    *earlier, last = request.conversation
    return replace(request, conversation=(*earlier, replace(last, text=text)))


def _texts(argument: Argument) -> Iterator[str]:
    for one in argument.items if isinstance(argument, Many) else (argument,):
        if isinstance(one, Text):
            yield one.text


def _translated(argument: Argument, whole: Mapping[int, str]) -> Argument:
    if isinstance(argument, Many):
        return Many(tuple(Text(one.text.translate(whole)) if isinstance(one, Text) else one for one in argument.items))
    return Text(argument.text.translate(whole)) if isinstance(argument, Text) else argument


def _unread(characters: int) -> Note:
    text = (
        f"{characters} characters in the middle of the request were not searched for what to do: put long texts in"
        " quotation marks or send them as files, and ask for the rest in another request."
    )
    return Note(NoteKind.TRIMMED, text)
