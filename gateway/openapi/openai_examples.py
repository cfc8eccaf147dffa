"""Example requests and responses of the OpenAI-compatible routes for the OpenAPI document."""

from typing import Any

RUN_ID = "run_19a2b3c4d5e6f708192a3b4"
_ID = "19a2b3c4d5e6f708192a3b4"
_HEAR = "Here it is read aloud: speech.wav.\n\n[speech.wav](http://127.0.0.1:8080/v1/artifacts/3a6eb079…)"
_EXTRAS = {"run_id": RUN_ID, "conversation_id": RUN_ID, "state": "completed", "artifacts": []}

_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg=="
"""A PNG image of one white pixel, base64."""

CHAT_REQUEST: dict[str, Any] = {
    "model": "hugginggpt",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Read the text in this image aloud"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_DOT}"}},
            ],
        }
    ],
}
STRUCTURED_REQUEST: dict[str, Any] = {
    "model": "hugginggpt",
    "messages": [{"role": "user", "content": "Is this good news? “We won!”"}],
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "mood",
            "schema": {
                "type": "object",
                "properties": {"sentiment": {"enum": ["positive", "negative"]}, "confidence": {"type": "number"}},
                "required": ["sentiment", "confidence"],
            },
        },
    },
}
_CHAT_HEAD = {"id": f"chatcmpl-{_ID}", "created": 1_900_000_000, "model": "hugginggpt"}
COMPLETION: dict[str, Any] = {
    **_CHAT_HEAD,
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": _HEAR,
                "refusal": None,
                "reasoning_content": "1. image-to-text\n",
            },
            "finish_reason": "stop",
            "logprobs": None,
        }
    ],
    "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "hugginggpt": _EXTRAS,
}
CHUNKS = f"""data: {{"id":"chatcmpl-{_ID}","choices":[{{"index":0,"delta":{{"content":"Here"}},…}}]}}

data: [DONE]
"""

RESPONSE_REQUEST: dict[str, Any] = {
    "model": "hugginggpt",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is in this picture?"},
                {"type": "input_image", "image_url": "https://example.org/picture.png"},
            ],
        }
    ],
    "background": True,
}
RESPONSE: dict[str, Any] = {
    "id": f"resp_{_ID}",
    "object": "response",
    "created_at": 1_900_000_000,
    "status": "completed",
    "background": False,
    "error": None,
    "incomplete_details": None,
    "model": "hugginggpt",
    "output": [
        {
            "id": f"msg_{_ID}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": _HEAR, "annotations": []}],
        }
    ],
    "usage": None,
    "hugginggpt": _EXTRAS,
}
RESPONSE_EVENTS = f"""id: 0
event: response.created
data: {{"type":"response.created","sequence_number":0,"response":{{"id":"resp_{_ID}",…}}}}
"""
DELETED: dict[str, Any] = {"id": f"resp_{_ID}", "object": "response", "deleted": True}
INPUT: dict[str, Any] = {
    "object": "list",
    "data": [
        {
            "id": f"msg_{_ID}_0",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "What is in this picture?"}],
        }
    ],
    "first_id": f"msg_{_ID}_0",
    "last_id": f"msg_{_ID}_0",
    "has_more": False,
}
MODEL: dict[str, Any] = {"id": "hugginggpt", "object": "model", "created": 0, "owned_by": "hugginggpt"}

EMBEDDINGS_REQUEST = {"model": "hugginggpt", "input": ["The exhibition opens on Friday.", "Entry is free."]}
EMBEDDINGS = {
    "object": "list",
    "data": [
        {"object": "embedding", "index": 0, "embedding": [0.12, -0.05, 0.31]},
        {"object": "embedding", "index": 1, "embedding": [0.08, 0.02, -0.27]},
    ],
    "model": "hugginggpt",
    "usage": {"prompt_tokens": 0, "total_tokens": 0},
}
IMAGES = {"created": 1900000000, "data": [{"url": "http://127.0.0.1:8080/v1/artifacts/" + "a" * 64}]}

BATCH_REQUEST = {
    "input_file_id": "file_5d1c2f8e7a9b40d3c6e1f2a3",
    "endpoint": "/v1/chat/completions",
    "completion_window": "24h",
}
BATCH = {
    "id": "batch_5d1c2f8e7a9b40d3c6e1f2a3",
    "object": "batch",
    "endpoint": "/v1/chat/completions",
    "errors": None,
    "input_file_id": "file_5d1c2f8e7a9b40d3c6e1f2a3",
    "completion_window": "24h",
    "status": "completed",
    "output_file_id": "file_0b2c2f8e7a9b40d3c6e1f2a3",
    "error_file_id": None,
    "created_at": 1900000000,
    "in_progress_at": 1900000001,
    "expires_at": 1900086400,
    "cancelling_at": None,
    "completed_at": 1900000060,
    "failed_at": None,
    "expired_at": None,
    "cancelled_at": None,
    "request_counts": {"total": 2, "completed": 2, "failed": 0},
    "metadata": {},
}
BATCHES = {"object": "list", "data": [BATCH], "first_id": BATCH["id"], "last_id": BATCH["id"], "has_more": False}
