"""Optional request parameters that an endpoint supports: all are sent until the endpoint refuses them."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from services.llm.prompt import Message, Schema
from services.llm.settings import LlmSettings

log = structlog.get_logger(__name__)

_NAME_PATTERNS = {
    "response_format": re.compile(
        r"response_?\s?format|json_?\s?schema|structured output|guided|grammar", re.IGNORECASE
    ),
    "stream_options": re.compile(r"stream_options|include_usage", re.IGNORECASE),
    "temperature": re.compile(r"temperature", re.IGNORECASE),
    "max_tokens": re.compile(r"max_completion_tokens", re.IGNORECASE),
}
"""Patterns of error messages that refuse a parameter; messages about max_tokens name its successor."""


@dataclass(frozen=True)
class ChatRequest:
    """One chat completion request.

    Args:
        messages: the prompt.
        schema: of the answer; sent if the endpoint supports it.
        answer_tokens: limit of the answer.
    """

    messages: Sequence[Message]
    schema: Schema | None
    answer_tokens: int


class EndpointCapabilities:
    """Parameters that one model at one endpoint has refused."""

    def __init__(self) -> None:
        self._unsupported = set[str]()

    def parameters(
        self, settings: LlmSettings, request: ChatRequest, *, without: Collection[str] = ()
    ) -> dict[str, Any]:
        """Returns the parameters of a request, except those disabled and those in `without`."""
        left_out = self._unsupported.union(without)
        limit = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        optional: dict[str, Any] = {
            limit: request.answer_tokens,
            "stream_options": {"include_usage": True},
            "temperature": settings.temperature,
        }
        if request.schema and settings.json_schema != "off":
            optional["response_format"] = _format(request.schema)
        return {
            "model": settings.model,
            "messages": [{"role": each.role, "content": _content(each)} for each in request.messages],
            "stream": True,
        } | {name: value for name, value in optional.items() if name not in left_out}

    def disable(self, names: Collection[str], model: str) -> None:
        """Omits these parameters from later requests, after a request without them succeeded."""
        self._unsupported.update(names)
        for name in names:
            log.info("unsupported LLM parameter disabled", model=model, parameter=name)


def refused_parameter(body: Any, sent: Collection[str]) -> str | None:
    """Returns the optional parameter in `sent` that the body of an error response names, if any."""
    text = body if isinstance(body, str) else json.dumps(body, default=str)
    return next((name for name, named in _NAME_PATTERNS.items() if name in sent and named.search(text)), None)


def _format(schema: Schema) -> dict[str, Any]:
    body = dict(schema.json_schema)
    return {"type": "json_schema", "json_schema": {"name": schema.name, "schema": body, "strict": _strict(body)}}


def _content(message: Message) -> Any:
    """Returns the text of a message or, if it has images, its content parts."""
    text = _encodable(message.content)
    if not message.images:
        return text
    images = [{"type": "image_url", "image_url": {"url": url}} for url in message.images]
    return [*images, *([{"type": "text", "text": text}] if text else [])]


def _encodable(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _strict(schema: Any) -> bool:
    """Whether the schema meets strict mode: every object requires all its properties and allows no others."""
    if isinstance(schema, list):
        return all(map(_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        listed = set(schema.get("properties", ())) == set(schema.get("required", ()))
        if not listed or schema.get("additionalProperties") is not False:
            return False
    return all(map(_strict, schema.values()))
