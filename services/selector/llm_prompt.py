"""The question of a model, put to an LLM within its budget of tokens."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.llm.messages import Message, Schema
from services.llm.prompt import Prompt, nonce, quoted
from services.selector.query import Wanted
from services.selector.selector import Chosen
from services.selector.shortcut import queue
from services.selector.text import plain

ID_CHARACTERS = 200
"""Of an id that can be shown and said again."""

_PROMPT = Prompt.read(Path(__file__).with_name("prompt.md"))
VERSION = _PROMPT.version

_TASK, _WORDS, _REQUEST, _DESCRIPTION, _SHORT = 400, 1000, 2000, 600, 60
"""Characters of texts that need no shortening."""
_LANGUAGES = 12
_SCALES = (1.0, 0.5, 0.25, 0.1)
_MESSAGE_TOKENS = 8
"""What an endpoint adds to a message, about."""


class Question(NamedTuple):
    """What an LLM is asked."""

    messages: Sequence[Message]
    schema: Schema
    ids: Sequence[str]
    """Of those it may choose from, best ranked first."""
    scale: float
    """How far texts were shortened: 1 is not."""


def posed(
    spec: TaskSpec, wanted: Wanted, rivals: Sequence[Chosen], budget: int, count: Callable[[str], int]
) -> Question | None:
    """The question with as much as the budget holds; texts are shortened first, then the last ranked left out.

    Args:
        spec: of the task.
        wanted: the task.
        rivals: best ranked first; no two of one id.
        budget: tokens.
        count: tokens of a text.

    Returns:
        None if not even two of them find room.
    """
    ids = [chosen.offer.card.id for chosen in rivals]
    tries = [(len(ids), scale) for scale in _SCALES] + [(length, _SCALES[-1]) for length in range(len(ids) - 1, 1, -1)]
    for length, scale in tries:
        messages = _messages(spec, wanted, rivals[:length], scale)
        if sum(count(message.content) + _MESSAGE_TOKENS for message in messages) <= budget:
            return Question(messages, _schema(ids[:length]), ids[:length], scale)
    return None


def can_be_named(model: str) -> bool:
    """Whether an id can be shown in a list and said again."""
    return 0 < len(model) <= ID_CHARACTERS and model.isprintable() and model == model.strip()


def _messages(spec: TaskSpec, wanted: Wanted, rivals: Sequence[Chosen], scale: float) -> Sequence[Message]:
    token = nonce()
    kind = {
        "task": plain(spec.name, _SHORT),
        "description": plain(spec.description, int(scale * _TASK)),
        "languages": ", ".join(sorted(wanted.languages)),
    }
    texts = {
        "task": _line({name: value for name, value in kind.items() if value}),
        "words": plain(wanted.source, int(scale * _WORDS)),
        "request": plain(wanted.request, int(scale * _REQUEST)),
        "candidates": "\n".join(_line(_described(chosen, wanted, scale)) for chosen in rivals),
    }
    return _PROMPT.filled(**{name: quoted(name, text, token) for name, text in texts.items()})


def _schema(ids: Sequence[str]) -> Schema:
    properties = {"id": {"type": "string", "enum": list(ids)}, "reason": {"type": "string"}}
    return Schema(
        "choice",
        {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False},
    )


def _described(chosen: Chosen, wanted: Wanted, scale: float) -> Mapping[str, object]:
    """What is known of a candidate, unknown things left out."""
    offer, card = chosen.offer, chosen.offer.card
    facts: dict[str, object] = {
        "id": card.id,
        "description": plain(card.description, int(scale * _DESCRIPTION)),
        "languages": _languages(offer.languages, wanted),
        "licence": plain(card.license, _SHORT),
        "parameters": card.parameter_count,
        "downloads": card.downloads,
        "likes": card.likes,
        "state": offer.presence.value if offer.presence else "",
        "where": "outside the house" if offer.external else "",
        "seconds": _seconds(offer.median),
        "seconds_at_worst": _seconds(card.p95.ToNanoseconds() / 1e9),
        "calls_waiting": queue(chosen),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _languages(tags: frozenset[str], wanted: Wanted) -> str:
    """Those that are wanted first, since not all may be shown."""
    shown = sorted(tags, key=lambda tag: (tag not in wanted.languages, tag))[:_LANGUAGES]
    return plain(", ".join(shown) + (f" and {len(tags) - len(shown)} more" if len(tags) > len(shown) else ""), 200)


def _seconds(value: float | None) -> float:
    return float(f"{value or 0:.2g}")


def _line(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False)
