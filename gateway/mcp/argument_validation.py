"""Validates the arguments of a tool call."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from gateway.mcp.schemas import Schema
from services.common.errors import InvalidRequest

_MAX_MESSAGE = 300


def validate_arguments(arguments: Mapping[str, Any], schema: Schema) -> None:
    """Raises InvalidRequest that names the first invalid argument and its error."""
    error = next(Draft202012Validator(schema).iter_errors(dict(arguments)), None)
    if error is None:
        return
    where = _path(error)
    message = error.message if len(error.message) <= _MAX_MESSAGE else f"{error.message[:_MAX_MESSAGE]}…"
    raise InvalidRequest(
        f"{where or 'the arguments'}: {message}",
        reason="ARGUMENTS",
        remedy=f"arguments of the tool: {', '.join(schema['properties'])}",
        port=where,
    )


def _path(error: ValidationError) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return "".join(steps).removeprefix(".")
