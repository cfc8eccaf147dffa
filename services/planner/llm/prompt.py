"""What an LLM is told to get a plan: the most valuable of what there is to tell, within a budget of tokens."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.llm.messages import Message
from services.llm.prompt import (
    FittedParts,
    Part,
    Prompt,
    escape_markers,
    fit_to_budget,
    nonce,
    prompt_version,
    quote_data,
)
from services.planner.llm import demonstrations, rendering
from services.planner.llm.demonstrations import COUNT, VARIETY, Demonstration, Demonstrations
from services.planner.llm.inputs import LONG, Material, shortened
from services.planner.llm.retrieval import Index, Shelf
from services.planner.plan import Catalogue, Note, NoteKind, modalities
from services.planner.request import Replan, Request

Count = Callable[[str], int]
"""How many tokens a text takes."""

RESERVE = 32
"""Tokens for what marks the messages of a prompt."""

REQUEST_SHARE, MENDING_SHARE = 0.4, 0.4
"""Most of the room that the request takes, and that an earlier answer with its complaints takes."""

TURN_CHARACTERS = 800
"""Most of one earlier turn."""

LOOKED_AT = 2_000
"""Characters of a text by which it is compared with others."""

_OPENING = re.compile(r"[<\[＜﹤‹〈]")

_FOLDER = Path(__file__).parent.parent
_PROMPTS = (_FOLDER / "prompt.md", _FOLDER / "mending.md")

_Kind = Literal["tasks", "demonstrations", "history", "material", "standing"]

_VALUES: Mapping[_Kind, tuple[float, float]] = {
    "material": (1.0, 0.02),
    "standing": (0.98, 0.02),
    "tasks": (0.95, 0.05),
    "demonstrations": (0.9, 0.25),
    "history": (0.85, 0.5),
}
"""What the best part of a kind is worth, and how fast those after it are worth less."""

_ALIKE = 0.5
"""What it adds to the worth of an earlier turn that it is about the same as the request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt.

    Args:
        messages: to be sent.
        names: of the tasks it shows.
        notes: what the user should know of what was left out.
        cut: how many parts of each kind were left out.
    """

    messages: tuple[Message, ...]
    names: tuple[str, ...]
    notes: tuple[Note, ...]
    cut: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Piece:
    """What a part of the prompt is, and the name of what it tells of."""

    kind: _Kind
    name: str = ""


class Prompting:
    """Makes prompts.

    Args:
        count: how many demonstrations are shown, as far as there is room.
        variety: 0 shows the most similar ones, 1 the least alike.
    """

    def __init__(self, *, count: int = COUNT, variety: float = VARIETY) -> None:
        self._demonstrations = Demonstrations.shipped()
        self._count, self._variety = count, variety
        self._planning, self._mending = map(Prompt.read, _PROMPTS)
        self.version = prompt_version(*(path.read_bytes() for path in (*_PROMPTS, demonstrations.FILE)))
        """Of all that prompts are made from."""
        self._known: tuple[Catalogue, Shelf] | None = None

    def planning(self, request: Request, catalogue: Catalogue, budget: int, tokens: Count) -> Asked:
        """The prompt for a plan, in at most so many tokens unless its instruction alone takes more."""
        material, escape_markers = Material.of(request), _defused(tokens)
        room = budget - RESERVE - _taken(self._planning.render(**_slots({}, request.limit)), tokens)
        words, whole = _within(material.words, len(request.text) + LONG, int(room * REQUEST_SHARE), escape_markers)
        found = fit_to_budget(
            list(self._parts(request, catalogue, material)), room - escape_markers(words), escape_markers
        )
        messages = self._planning.render(**_slots(_texts(found, words), request.limit))
        shown = tuple(part.item.name for part in found.included if part.item.kind == "tasks")
        notes = tuple(_notes(found, whole=whole, inputs={named.name for named in request.inputs}))
        return Asked(tuple(messages), shown, notes, Counter(part.item.kind for part in found.omitted))

    def mending(
        self, asked: tuple[Request, Catalogue], answer: str, complaints: str, budget: int, tokens: Count
    ) -> Asked:
        """The prompt for what an answer got wrong: the first one again, as far as there is room, and what is wrong."""
        room = int(budget * MENDING_SHARE / 2)
        said, _ = _within(lambda characters: shortened(answer, characters), len(answer), room, tokens)
        wrong, _ = _within(
            lambda characters: shortened(complaints, characters), len(complaints), room, _defused(tokens)
        )
        further = self._mending.render(answer=escape_markers(said), complaints=quote_data("complaints", wrong, nonce()))
        first = self.planning(*asked, budget - _taken(further, tokens), tokens)
        return Asked((*first.messages, *further), first.names, (), first.cut)

    def _parts(self, request: Request, catalogue: Catalogue, material: Material) -> Iterator[Part[_Piece]]:
        words = material.words(LOOKED_AT)
        shown = self._demonstrations.like(words, catalogue, count=self._count, variety=self._variety)
        yield from self._tasks(request, catalogue, material, shown)
        yield from _parts("demonstrations", (("", rendering.demonstration(one)) for one in shown))
        yield from _history(request)
        yield from _parts("material", ((item.name, item.described()) for item in material.listed))
        yield from _standing(request, material)

    def _tasks(
        self, request: Request, catalogue: Catalogue, material: Material, shown: Iterable[Demonstration]
    ) -> Iterator[Part[_Piece]]:
        given = {modality for item in material.items for modality in modalities(item.value)[:1]}
        sure = {name for one in shown for name in one.names} | {task.task for task in request.standing}
        ordered = self._shelf(catalogue).ordered(material.words(LOOKED_AT), given, sure)
        return _parts("tasks", ((spec.name, rendering.task(spec)) for spec in ordered))

    def _shelf(self, catalogue: Catalogue) -> Shelf:
        if self._known is None or self._known[0] is not catalogue:
            self._known = catalogue, Shelf(catalogue, self._demonstrations.used)
        return self._known[1]


def _parts(kind: _Kind, told: Iterable[tuple[str, str]]) -> Iterator[Part[_Piece]]:
    """Parts of one kind, the most valuable first."""
    best, decline = _VALUES[kind]
    for position, (name, text) in enumerate(told):
        yield Part(_Piece(kind, name), f"{text}\n", best / (1 + position * decline))


def _history(request: Request) -> Iterator[Part[_Piece]]:
    """The turns before the last, oldest first; the newest and those about the same are worth most."""
    earlier = request.conversation[:-1]
    alike = Index([shortened(turn.text, LOOKED_AT) for turn in earlier]).scores(shortened(request.text, LOOKED_AT))
    newest_first = _parts("history", (("", rendering.turn(turn, TURN_CHARACTERS)) for turn in reversed(earlier)))
    for part, score in zip(reversed(list(newest_first)), alike, strict=True):
        yield Part(part.item, part.text, part.priority + _ALIKE * score)


def _standing(request: Request, material: Material) -> Iterator[Part[_Piece]]:
    failed = request.goal.failed if isinstance(request.goal, Replan) else ()
    told = (("", rendering.standing(prior, material.items, failed=prior.task.id in failed)) for prior in request.prior)
    return _parts("standing", told)


def _texts(found: FittedParts[_Piece], words: str) -> Mapping[str, str]:
    texts = {"request": words}
    for part in found.included:
        texts[part.item.kind] = texts.get(part.item.kind, "") + part.text
    return {kind: text.rstrip("\n") for kind, text in texts.items()}


def _slots(texts: Mapping[str, str], limit: int) -> Mapping[str, str]:
    token = nonce()
    data = ("tasks", "history", "material", "standing", "request")
    return {
        **{kind: quote_data(kind, texts.get(kind, ""), token) for kind in data},
        "demonstrations": texts.get("demonstrations", ""),
        "limit": f" At most {limit} tasks." if limit else "",
    }


def _notes(found: FittedParts[_Piece], *, whole: bool, inputs: set[str]) -> Iterator[Note]:
    if not whole:
        yield Note(NoteKind.TRIMMED, "The request is longer than the planner can read: the middle of it was left out.")
    unseen = [part.item.name for part in found.omitted if part.item.kind == "material" and part.item.name in inputs]
    if unseen:
        more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
        yield Note(NoteKind.TRIMMED, f"There are more files than the planner can look at: {unseen[0]}{more} left out.")


def _within(written: Callable[[int], str], characters: int, room: int, tokens: Count) -> tuple[str, bool]:
    """A text in as many characters as there is room for, and whether that is all of it."""
    text, whole = written(characters), True
    while (taken := tokens(text)) > room and characters > LONG:
        characters = max(int(min(characters, len(text)) * max(room, 1) / taken * 0.95), LONG)
        text, whole = written(characters), False
    return text, whole


def _defused(tokens: Count) -> Count:
    """Counts a text as data, in which whatever may look like a delimiter is written out."""
    return lambda text: tokens(_OPENING.sub("&lt;", text))


def _taken(messages: Sequence[Message], tokens: Count) -> int:
    return sum(tokens(message.content) for message in messages)
