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

_EMBEDDINGS_REQUEST = {
    "type": "object",
    "required": ["model", "input"],
    "properties": {
        "model": {**_TEXT, "description": "A model of this API, or the id of a model that offers the task."},
        "input": {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]},
        "encoding_format": {"enum": ["float", "base64"]},
    },
}
_EMBEDDINGS = {
    "type": "object",
    "required": ["object", "data", "model", "usage"],
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"type": "object", "required": ["object", "index", "embedding"]}},
        "model": _TEXT,
        "usage": {"type": "object"},
    },
}
_TRANSCRIPTION_FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "model": _TEXT,
        "language": _TEXT,
        "response_format": {"enum": ["json", "text", "verbose_json"]},
    },
}
_TRANSCRIPTION = {"type": "object", "required": ["text"], "properties": {"text": _TEXT}}
_SPEECH_REQUEST = {
    "type": "object",
    "required": ["input"],
    "properties": {
        "model": _TEXT,
        "input": _TEXT,
        "voice": {**_TEXT, "description": "A voice of the model; names of OpenAI's voices have no effect."},
        "speed": {"type": "number"},
        "response_format": {"enum": ["wav"]},
    },
}
_IMAGES_REQUEST = {
    "type": "object",
    "required": ["prompt"],
    "properties": {
        "prompt": _TEXT,
        "model": _TEXT,
        "n": {"type": "integer", "minimum": 1, "maximum": 10},
        "size": {**_TEXT, "description": "WIDTHxHEIGHT in pixels, or auto."},
        "response_format": {"enum": ["url", "b64_json"]},
    },
}
_IMAGES = {
    "type": "object",
    "required": ["created", "data"],
    "properties": {"created": {"type": "integer"}, "data": {"type": "array", "items": {"type": "object"}}},
}

EMBEDDINGS: dict[str, Any] = {
    **_answer("The vectors, in the order of the texts.", _EMBEDDINGS, openai_examples.EMBEDDINGS),
    **_request_body(_EMBEDDINGS_REQUEST, texts=openai_examples.EMBEDDINGS_REQUEST),
}
TRANSCRIPTION: dict[str, Any] = {
    **_answer("What is said.", _TRANSCRIPTION, {"text": "The exhibition opens on Friday."}),
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": _TRANSCRIPTION_FORM,
                    "example": {"file": "(bytes of speech.wav)", "model": "hugginggpt"},
                }
            },
        }
    },
}
SPEECH: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The speech.",
            "content": {
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"},
                    "example": "(bytes of speech.wav)",
                }
            },
        }
    },
    **_request_body(_SPEECH_REQUEST, text={"model": "hugginggpt", "input": "Welcome to the museum."}),
}
IMAGES: dict[str, Any] = {
    **_answer("Links to the pictures, or their content.", _IMAGES, openai_examples.IMAGES),
    **_request_body(_IMAGES_REQUEST, picture={"model": "hugginggpt", "prompt": "A castle on a hill", "n": 1}),
}

_BATCH_REQUEST = {
    "type": "object",
    "required": ["input_file_id", "endpoint", "completion_window"],
    "properties": {
        "input_file_id": {**_TEXT, "description": "Id of a JSONL file of requests."},
        "endpoint": {"enum": ["/v1/chat/completions", "/v1/responses", "/v1/embeddings"]},
        "completion_window": {"const": "24h"},
        "metadata": {"type": ["object", "null"], "additionalProperties": _TEXT},
    },
}
_BATCH = {
    "type": "object",
    "required": ["id", "object", "endpoint", "input_file_id", "completion_window", "status", "created_at"],
    "properties": {
        "id": _TEXT,
        "object": {"const": "batch"},
        "status": _TEXT,
        "output_file_id": _MAYBE_TEXT,
        "error_file_id": _MAYBE_TEXT,
        "request_counts": {"type": "object"},
    },
}
_BATCHES = {
    "type": "object",
    "required": ["object", "data", "has_more"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _BATCH}},
}

CREATE_BATCH: dict[str, Any] = {
    **_answer("The batch.", _BATCH, openai_examples.BATCH),
    **_request_body(_BATCH_REQUEST, chat=openai_examples.BATCH_REQUEST),
}
BATCHES = _answer("A page of batches.", _BATCHES, openai_examples.BATCHES)
BATCH = _answer("The batch.", _BATCH, openai_examples.BATCH)
