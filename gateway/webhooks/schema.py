"""What a webhook looks like in JSON."""

from typing import Any

WEBHOOK: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "url", "name", "created_at"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "webhook"},
        "url": {"type": "string"},
        "name": {"type": "string"},
        "created_at": {"type": "integer", "description": "Seconds since the epoch."},
        "ended_at": {"type": "integer", "description": "When its server said that it is gone (410)."},
        "secret": {"type": "string", "description": "Told once: what signatures are checked with."},
        "deliveries": {
            "type": "array",
            "description": "The last ones, newest first.",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "The header webhook-id."},
                    "run_id": {"type": "string", "description": "The run that ended, if it was one."},
                    "batch_id": {"type": "string", "description": "The batch that ended, if it was one."},
                    "state": {"enum": ["waiting", "delivered", "failed", "withheld"]},
                    "attempts": {"type": "integer"},
                    "outcome": {"type": "string", "description": "Of the last attempt."},
                    "created_at": {"type": "integer"},
                    "next_at": {"type": "integer", "description": "When it is tried next."},
                },
            },
        },
    },
}
