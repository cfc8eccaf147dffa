"""JSON schema of a plan, for endpoints that constrain answers."""

from collections.abc import Sequence
from typing import Any

from services.llm.messages import Schema

_TEXT = {"type": "string"}
_NOTE = {"note": {"enum": ["unmapped", "clarify", "chat"]}, "text": _TEXT, "source": _TEXT}


def plan_schema(names: Sequence[str]) -> Schema:
    """Returns the schema of a plan with these task names."""
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
