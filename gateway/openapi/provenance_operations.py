"""Responses and examples of the record and verification routes."""

from typing import Any

from gateway.openapi import examples
from gateway.openapi.document import answer

AGAIN_ID = "run_19a2b3c4f00dcafe0192a3b4"

_MODEL = {
    "model_id": "espeak-ng",
    "revision": "0.2.4",
    "expert": "lite",
    "expert_version": "0.1.0",
    "location": "internal",
}
_SPOKEN = {
    "sha256": examples.ARTIFACT["sha256"],
    "kind": "artifact",
    "size_bytes": 88244,
    "media_type": "audio/wav",
}
_TEXT = {"sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "kind": "text", "size_bytes": 4}
_TASK = {
    "id": 1,
    "task": "text-to-speech",
    "state": "succeeded",
    "determinism": "numeric",
    "arguments": [{"port": "text", "value": _TEXT, "task_id": 0, "input": 1}],
    "parameters": [{"name": "speed", "number": 1}],
    "pinned": False,
    "model": _MODEL,
    "seed": 0,
    "outputs": {"audio": _SPOKEN},
    "attempts": [{"attempt": 1, "model": _MODEL}],
    "reused": False,
}
_RECORD = {
    "version": 1,
    "run_id": examples.RUN_ID,
    "conversation_id": examples.RUN_ID,
    "caller": {"tenant": "default", "priority": "interactive"},
    "create_time": "2030-01-31T12:00:00Z",
    "end_time": "2030-01-31T12:00:02Z",
    "state": "completed",
    "policy": "local",
    "bypass_memo": False,
    "inputs": [_TEXT],
    "planning": [
        {"controller": "embedded", "version": "weights:5d41402abc4b2a76", "fell_back": False, "confidence": 1}
    ],
    "tasks": [_TASK],
    "llm_models": [],
    "takeovers": 0,
}
_VERIFICATION = {
    "version": 1,
    "run_id": examples.RUN_ID,
    "again_run_id": AGAIN_ID,
    "ended": True,
    "verified": True,
    "tasks": [
        {
            "id": 1,
            "task": "text-to-speech",
            "outcome": "same",
            "model": _MODEL,
            "determinism": "numeric",
            "findings": [],
        }
    ],
}
_STARTED = {**_VERIFICATION, "ended": False, "verified": False, "tasks": []}

RECORD: dict[str, Any] = {"responses": {200: answer("The record.", "RunRecord", _RECORD)}}
VERIFY: dict[str, Any] = {
    "status_code": 202,
    "responses": {
        200: answer("No task can be rerun; each task states why.", "Verification", _VERIFICATION),
        202: answer("The rerun has started. `Location` is the URL of its result.", "Verification", _STARTED),
    },
}
VERIFICATION: dict[str, Any] = {
    "responses": {200: answer("The result; without tasks until the rerun has ended.", "Verification", _VERIFICATION)}
}
SCHEMA: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The schema.",
            "content": {"application/json": {"schema": {"type": "object"}, "example": {"title": "A record"}}},
        }
    }
}
