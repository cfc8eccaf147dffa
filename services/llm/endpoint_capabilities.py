"""What an endpoint takes of the protocol's optional parameters: all are tried, what it refuses is given up."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from services.llm.messages import Message, Schema
from services.llm.settings import LlmSettings

log = structlog.get_logger(__name__)

_NAMED_BY = {
    "response_format": re.compile(
        r"response_?\s?format|json_?\s?schema|structured output|guided|grammar", re.IGNORECASE
    ),
    "stream_options": re.compile(r"stream_options|include_usage", re.IGNORECASE),
    "temperature": re.compile(r"temperature", re.IGNORECASE),
    "max_tokens": re.compile(r"max_completion_tokens", re.IGNORECASE),
}
"""How a refusal names a parameter; max_tokens is refused by naming what stands for it now."""


@dataclass(frozen=True)
class Ask:
    """One question.

    Args:
        messages: the prompt.
        schema: what the answer must look like, where the endpoint can be told.
        answer_tokens: at most.
    """

    messages: Sequence[Message]
    schema: Schema | None
    answer_tokens: int


class Dialect:
    """What one model at one endpoint has refused so far."""

    def __init__(self) -> None:
        self._given_up = set[str]()

    def parameters(self, settings: LlmSettings, ask: Ask, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Of a request, without what was given up and what else is named."""
        left_out = self._given_up.union(without)
        limit = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        optional: dict[str, Any] = {
            limit: ask.answer_tokens,
            "stream_options": {"include_usage": True},
            "temperature": settings.temperature,
        }
        if ask.schema and settings.json_schema != "off":
            optional["response_format"] = _format(ask.schema)
        return {
            "model": settings.model,
            "messages": [{"role": message.role, "content": _sendable(message.content)} for message in ask.messages],
            "stream": True,
        } | {name: value for name, value in optional.items() if name not in left_out}

    def give_up(self, names: Collection[str], model: str) -> None:
        """From now on no request has them: one without them was answered."""
        self._given_up.update(names)
        for name in names:
            log.info("an endpoint does without a parameter", model=model, parameter=name)


def refusal(body: Any, sent: Collection[str]) -> str | None:
    """The parameter that the body of a refusal names, of those that were sent and can be done without."""
    text = body if isinstance(body, str) else json.dumps(body, default=str)
    return next((name for name, named in _NAMED_BY.items() if name in sent and named.search(text)), None)


def _format(schema: Schema) -> dict[str, Any]:
    body = dict(schema.json_schema)
    return {"type": "json_schema", "json_schema": {"name": schema.name, "schema": body, "strict": _strict(body)}}


def _sendable(text: str) -> str:
    """The text without halves of characters, which JSON on the wire cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _strict(schema: Any) -> bool:
    """Whether every object in it lists all its properties as required and takes no others, as strict mode demands."""
    if isinstance(schema, list):
        return all(map(_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        listed = set(schema.get("properties", ())) == set(schema.get("required", ()))
        if not listed or schema.get("additionalProperties") is not False:
            return False
    return all(map(_strict, schema.values()))
