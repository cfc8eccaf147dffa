"""What a plan looks like to an endpoint that holds its model to a JSON schema."""

from collections.abc import Sequence
from typing import Any

from services.llm.messages import Schema

_TEXT = {"type": "string"}
_NOTE = {"note": {"enum": ["unmapped", "clarify", "chat"]}, "text": _TEXT, "source": _TEXT}


def plan_schema(names: Sequence[str]) -> Schema:
    """A plan of tasks with these names."""
    task = {
        "task": {"enum": list(names)},
        "id": {"type": "integer"},
        "dep": {"type": "array", "items": {"type": "integer"}},
        "args": {"type": "object"},
        "source": _TEXT,
    }
    items = {"anyOf": [_object(task), _object(_NOTE)]}
    return Schema("plan", _object({"tasks": {"type": "array", "items": items}}))


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
