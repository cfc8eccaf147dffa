"""Builds the prompt by which an LLM selects a model, within its token budget."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.llm.prompt import Message, Prompt, Schema, nonce, quote_data
from services.selector.decisive_ranking import queue
from services.selector.query import SelectionQuery
from services.selector.selection import SelectedModel

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
        "seconds": _seconds(offer.median),
        "seconds_at_worst": _seconds(card.p95.ToNanoseconds() / 1e9),
        "calls_waiting": queue(chosen),
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


def plain(text: str, limit: int) -> str:
    """One line without control and invisible characters, cut to a number of characters."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
