"""Tolerant parser of an LLM's choice of a model."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from services.selector.text import plain

REASON_CHARACTERS = 300

_READ_CHARACTERS = 4_000
_LOOKS_ALIKE = 0.85
_PAIR = re.compile(
    r"""["']?\b(?P<key>id|reason)["']?\s*[:=]\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"?|'(?P<single>[^'\n]*)'?)""",
    re.IGNORECASE,
)
"""Fields of invalid JSON: single quotes, unquoted keys, superfluous commas, a missing end."""


class Answer(NamedTuple):
    """The model that an LLM chose, as it wrote the name."""

    named: str
    reason: str


def read(text: str, ids: Sequence[str]) -> Answer | None:
    """Parses the chosen model; the last object counts, since some LLMs reason first. None if no model is named.

    Args:
        text: reply of an LLM.
        ids: of the candidates; a text without an object may mention one of them.
    """
    text = text[-_READ_CHARACTERS:]
    found = list(_objects(text)) or list(_pairs(text)) or list(_mentioned(text, ids))
    return found[-1] if found else None


def repaired(named: str, ids: Sequence[str]) -> str | None:
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
