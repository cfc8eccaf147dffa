"""JSON Schema of a webhook."""

from typing import Any

WEBHOOK: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "url", "name", "created_at"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "webhook"},
        "url": {"type": "string"},
        "name": {"type": "string"},
        "created_at": {"type": "integer", "description": "Unix time in seconds."},
        "ended_at": {"type": "integer", "description": "When the receiver answered 410 Gone; no delivery follows."},
        "secret": {"type": "string", "description": "Signing secret; only returned at creation."},
        "deliveries": {
            "type": "array",
            "description": "The most recent deliveries, newest first.",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "Value of the webhook-id header."},
                    "run_id": {"type": "string", "description": "The run that ended; absent for a batch."},
                    "batch_id": {"type": "string", "description": "The batch that ended; absent for a run."},
                    "state": {"enum": ["waiting", "delivered", "failed", "withheld"]},
                    "attempts": {"type": "integer"},
                    "outcome": {"type": "string", "description": "Result of the last attempt."},
                    "created_at": {"type": "integer"},
                    "next_at": {"type": "integer", "description": "Unix time of the next attempt, in seconds."},
                },
            },
        },
    },
}
