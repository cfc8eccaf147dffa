"""Builds the prompt by which an LLM selects a model, within its token budget, and reads its answer."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.llm.prompt import Message, Prompt, Schema, nonce, quote_data
from services.selector.selection import SelectedModel, SelectionQuery

ID_CHARACTERS = 200
"""Longest ID that is shown to an LLM."""

_PROMPT = Prompt.read(Path(__file__).with_name("prompt.md"))
VERSION = _PROMPT.version

_TASK, _WORDS, _REQUEST, _DESCRIPTION, _SHORT = 400, 1000, 2000, 600, 60
"""Characters of texts that are shown in full."""
_LANGUAGES = 12
_SCALES = (1.0, 0.5, 0.25, 0.1)
_MESSAGE_TOKENS = 8
"""Approximate tokens that an endpoint adds to a message."""


REASON_CHARACTERS = 300

_READ_CHARACTERS = 4_000
_LOOKS_ALIKE = 0.85
_PAIR = re.compile(
    r"""["']?\b(?P<key>id|reason)["']?\s*[:=]\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"?|'(?P<single>[^'\n]*)'?)""",
    re.IGNORECASE,
)
"""Fields of invalid JSON: single quotes, unquoted keys, superfluous commas, a missing end."""


class Question(NamedTuple):
    """A prompt for the LLM."""

    messages: Sequence[Message]
    schema: Schema
    ids: Sequence[str]
    """IDs of the candidates, best ranked first."""
    scale: float
    """Factor by which texts were shortened; 1: not shortened."""


def build_question(
    spec: TaskSpec, query: SelectionQuery, contenders: Sequence[SelectedModel], budget: int, count: Callable[[str], int]
) -> Question | None:
    """Builds the prompt within the budget; shortens texts first, then drops the last-ranked candidates.

    Args:
        spec: of the task.
        query: the selection query.
        contenders: candidates, best ranked first, with distinct IDs.
        budget: tokens.
        count: counts the tokens of a text.

    Returns:
        None if not even two candidates fit.
    """
    ids = [chosen.offer.card.id for chosen in contenders]
    tries = [(len(ids), scale) for scale in _SCALES] + [(length, _SCALES[-1]) for length in range(len(ids) - 1, 1, -1)]
    for length, scale in tries:
        messages = _messages(spec, query, contenders[:length], scale)
        if sum(count(message.content) + _MESSAGE_TOKENS for message in messages) <= budget:
            return Question(messages, _schema(ids[:length]), ids[:length], scale)
    return None


def can_be_named(model: str) -> bool:
    """Whether an ID can be shown to an LLM and repeated by it."""
    return 0 < len(model) <= ID_CHARACTERS and model.isprintable() and model == model.strip()


def _messages(
    spec: TaskSpec, query: SelectionQuery, contenders: Sequence[SelectedModel], scale: float
) -> Sequence[Message]:
    token = nonce()
    kind = {
        "task": plain(spec.name, _SHORT),
        "description": plain(spec.description, int(scale * _TASK)),
        "languages": ", ".join(sorted(query.languages)),
    }
    texts = {
        "task": _line({name: value for name, value in kind.items() if value}),
        "words": plain(query.source, int(scale * _WORDS)),
        "request": plain(query.request, int(scale * _REQUEST)),
        "candidates": "\n".join(_line(_facts(chosen, query, scale)) for chosen in contenders),
    }
    return _PROMPT.render(**{name: quote_data(name, text, token) for name, text in texts.items()})


def _schema(ids: Sequence[str]) -> Schema:
    properties = {"id": {"type": "string", "enum": list(ids)}, "reason": {"type": "string"}}
    return Schema(
        "choice",
        {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False},
    )


def _facts(chosen: SelectedModel, query: SelectionQuery, scale: float) -> Mapping[str, object]:
    """Known facts of a candidate; unknown ones are left out."""
    offer, card = chosen.offer, chosen.offer.card
    facts: dict[str, object] = {
        "id": card.id,
        "description": plain(card.description, int(scale * _DESCRIPTION)),
        "languages": _languages(offer.languages, query),
        "licence": plain(card.license, _SHORT),
        "parameters": card.parameter_count,
        "downloads": card.downloads,
        "likes": card.likes,
        "state": offer.readiness.value if offer.readiness else "",
        "where": "external" if offer.external else "",
        "memory": "more than its machine has" if card.exceeds_memory else "",
        "seconds": _seconds(offer.median),
        "seconds_at_worst": _seconds(card.p95.ToNanoseconds() / 1e9),
        "calls_waiting": chosen.shortest_queue,
    }
    return {name: fact for name, fact in facts.items() if fact}


def _languages(tags: frozenset[str], query: SelectionQuery) -> str:
    """Language tags, those of the query first, since not all may be shown."""
    shown = sorted(tags, key=lambda tag: (tag not in query.languages, tag))[:_LANGUAGES]
    return plain(", ".join(shown) + (f" and {len(tags) - len(shown)} more" if len(tags) > len(shown) else ""), 200)


def _seconds(value: float | None) -> float:
    return float(f"{value or 0:.2g}")


def _line(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False)


# ---------------------------------------------------------------- answer


class Answer(NamedTuple):
    """The model that an LLM chose, as it wrote the name."""

    named: str
    reason: str


def read_answer(text: str, ids: Sequence[str]) -> Answer | None:
    """Parses the chosen model; the last object counts, since some LLMs reason first. None if no model is named.

    Args:
        text: reply of an LLM.
        ids: of the candidates; a text without an object may mention one of them.
    """
    text = text[-_READ_CHARACTERS:]
    found = list(_objects(text)) or list(_pairs(text)) or list(_mentioned(text, ids))
    return found[-1] if found else None


def match_candidate(named: str, ids: Sequence[str]) -> str | None:
    """The one candidate that matches a name: exactly, else by letters and digits, last part, or similarity."""
    if named in ids:
        return named
    for key in (_letters, _last_part):
        if found := [candidate for candidate in ids if key(candidate) == key(named)]:
            return found[0] if len(found) == 1 else None
    by_letters = {_letters(candidate): candidate for candidate in ids}
    near = get_close_matches(_letters(named), by_letters, n=2, cutoff=_LOOKS_ALIKE)
    return by_letters[near[0]] if len(near) == 1 else None


def _objects(text: str) -> Iterator[Answer]:
    decoder, start = json.JSONDecoder(strict=False), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value, end = {}, start
        if isinstance(value.get("id"), str):
            yield _answer(value["id"], value.get("reason"))
        else:
            end = start + 1  # the object may be nested deeper
        start = text.find("{", end)


def _pairs(text: str) -> Iterator[Answer]:
    fields = {match["key"].lower(): match["double"] or match["single"] or "" for match in _PAIR.finditer(text)}
    if "id" in fields:
        yield _answer(fields["id"], fields.get("reason"))


def _mentioned(text: str, ids: Sequence[str]) -> Iterator[Answer]:
    named = [candidate for candidate in ids if candidate in text]
    whole = [candidate for candidate in named if not any(candidate != other and candidate in other for other in named)]
    if len(whole) == 1:
        yield _answer(whole[0], None)


def _answer(named: str, reason: object) -> Answer:
    return Answer(named.strip(), plain(reason, REASON_CHARACTERS) if isinstance(reason, str) else "")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold()))


def _last_part(name: str) -> str:
    return _letters(name.rstrip("/").rpartition("/")[2])


def plain(text: str, limit: int) -> str:
    """One line without control and invisible characters, cut to a number of characters."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
