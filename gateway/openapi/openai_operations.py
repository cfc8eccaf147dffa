"""Request bodies, responses and examples of the OpenAI-compatible routes."""

from typing import Any

from gateway.core.catalog import CONTROLLERS
from gateway.openapi import openai_examples

_TEXT = {"type": "string"}
_FLAG = {"type": ["boolean", "null"]}
_MAYBE_TEXT = {"type": ["string", "null"]}
_EVENTS = {
    "description": "A stream of server-sent events. The object form describes one parsed event.",
    "anyOf": [
        _TEXT,
        {"type": "object", "required": ["data"], "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT}},
    ],
}
_CONTENT = {
    "description": "Text, or a list of content parts.",
    "anyOf": [_TEXT, {"type": "array", "items": {"type": "object", "required": ["type"]}}, {"type": "null"}],
}
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
        "content": _CONTENT,
    },
}
_CHAT_REQUEST = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {"enum": list(CONTROLLERS)},
        "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
        "stream": _FLAG,
        "stream_options": {"type": ["object", "null"], "properties": {"include_usage": _FLAG}},
        "response_format": {
            "type": ["object", "null"],
            "description": "`json_schema` needs an LLM, whose answer it guides; without one the message has a refusal.",
        },
        "store": {**_FLAG, "description": "`false`: the run is deleted after it has ended."},
    },
}
_RESPONSE_REQUEST = {
    "type": "object",
    "required": ["model", "input"],
    "properties": {
        "model": {"enum": list(CONTROLLERS)},
        "input": {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": {"type": "object"}}]},
        "instructions": _MAYBE_TEXT,
        "stream": _FLAG,
        "background": _FLAG,
        "store": {**_FLAG, "description": "`false`: the response is deleted after it has ended."},
        "previous_response_id": _MAYBE_TEXT,
        "metadata": {"type": ["object", "null"], "additionalProperties": _TEXT},
        "text": {"type": ["object", "null"], "properties": {"format": {"type": ["object", "null"]}}},
    },
}
_COMPLETION = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {
        "id": _TEXT,
        "object": {"const": "chat.completion"},
        "created": {"type": "integer"},
        "model": _TEXT,
        "choices": {"type": "array", "items": {"type": "object", "required": ["index", "message", "finish_reason"]}},
        "usage": {"type": "object"},
        "hugginggpt": {"type": "object", "description": "The underlying run: id, state and artifacts."},
    },
}
_STATUSES = ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
_RESPONSE = {
    "type": "object",
    "required": ["id", "object", "created_at", "status", "model", "output"],
    "properties": {
        "id": _TEXT,
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": _STATUSES},
        "model": _TEXT,
        "output": {"type": "array", "items": {"type": "object", "required": ["id", "type"]}},
        "hugginggpt": {"type": "object", "description": "The underlying run: id, state and artifacts."},
    },
}
_ITEMS = {
    "type": "object",
    "required": ["object", "data", "has_more"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {"type": "object"}}},
}
_DELETED = {
    "type": "object",
    "required": ["id", "object", "deleted"],
    "properties": {"id": _TEXT, "object": {"const": "response"}, "deleted": {"const": True}},
}
_MODEL = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {"id": _TEXT, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": _TEXT},
}


def _answer(description: str, schema: dict[str, Any], example: Any, events: str = "") -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": schema, "example": example}}
    if events:
        content["text/event-stream"] = {"schema": _EVENTS, "example": events}
    return {"responses": {200: {"description": description, "content": content}}}


def _request_body(schema: dict[str, Any], **shown: Any) -> dict[str, Any]:
    content = {"schema": schema, "examples": {name: {"value": value} for name, value in shown.items()}}
    return {"openapi_extra": {"requestBody": {"required": True, "content": {"application/json": content}}}}


CHAT: dict[str, Any] = {
    **_answer(
        "The completion, or its chunks with `stream`.", _COMPLETION, openai_examples.COMPLETION, openai_examples.CHUNKS
    ),
    **_request_body(_CHAT_REQUEST, picture=openai_examples.CHAT_REQUEST, structured=openai_examples.STRUCTURED_REQUEST),
}
RESPOND: dict[str, Any] = {
    **_answer(
        "The response, or its events with `stream`.",
        _RESPONSE,
        openai_examples.RESPONSE,
        openai_examples.RESPONSE_EVENTS,
    ),
    **_request_body(_RESPONSE_REQUEST, background=openai_examples.RESPONSE_REQUEST),
}
RESPONSE = _answer(
    "The response in its current state, or its events.",
    _RESPONSE,
    openai_examples.RESPONSE,
    openai_examples.RESPONSE_EVENTS,
)
RESPONSE_CANCELLED = _answer("The response after the cancellation request.", _RESPONSE, openai_examples.RESPONSE)
RESPONSE_DELETED = _answer("The response is deleted.", _DELETED, openai_examples.DELETED)
INPUT_ITEMS = _answer("The input items of the response.", _ITEMS, openai_examples.INPUT)
MODEL = _answer("The model.", _MODEL, openai_examples.MODEL)
