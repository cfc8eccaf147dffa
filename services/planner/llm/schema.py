"""JSON schema of a plan, for endpoints that constrain answers."""

import json
from collections.abc import Sequence
from typing import Any

from services.llm.prompt import Schema
from services.planner.task_spec import Parameter, Port, Spec

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_NOTE = {"note": {"enum": ["unmapped", "clarify", "chat"]}, "text": _TEXT, "source": _TEXT}

_KEYWORDS = ("type", "enum", "items")
"""Keywords of a parameter's schema that are sent: every endpoint that takes schemas knows them. The planner checks the
others itself."""


def plan_schema(specs: Sequence[Spec]) -> Schema:
    """Returns the schema of a plan with these tasks, each with its own arguments."""
    items = {"anyOf": [*map(_task, specs), _object(_NOTE)]}
    return Schema("plan", _object({"tasks": {"type": "array", "items": items}}))


def _task(spec: Spec) -> dict[str, Any]:
    return _object(
        {
            "task": {"enum": [spec.name]},
            "id": {"type": "integer"},
            "dep": {"type": "array", "items": {"type": "integer"}},
            "args": _arguments(spec),
            "source": _TEXT,
        }
    )


def _arguments(spec: Spec) -> dict[str, Any]:
    """Ports and parameters of a task. Optional ones may be left out, which saves the tokens of their nulls."""
    ports = {port.name: _port(port) for port in spec.inputs}
    parameters = {parameter.name: _parameter(parameter) for parameter in spec.parameters}
    required = [port.name for port in spec.inputs if port.required]
    return _object(parameters | ports, required)


def _port(port: Port) -> dict[str, Any]:
    """A literal or reference, or several: a task with several values for a port that takes one is split."""
    return _TEXTS if port.many else {"anyOf": [_TEXT, _TEXTS]}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    try:
        schema = json.loads(parameter.json_schema or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(schema, dict):
        return {}
    return {keyword: schema[keyword] for keyword in _KEYWORDS if keyword in schema}


def _object(properties: dict[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }
