"""Arguments compared with what a tool takes."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from gateway.mcp.schemas import Schema
from services.common.errors import InvalidRequest

_MOST = 300


def checked(arguments: Mapping[str, Any], schema: Schema) -> None:
    """Raises InvalidRequest, naming the first argument that is wrong, and how."""
    error = next(Draft202012Validator(schema).iter_errors(dict(arguments)), None)
    if error is None:
        return
    where = _place(error)
    message = error.message if len(error.message) <= _MOST else f"{error.message[:_MOST]}…"
    raise InvalidRequest(
        f"{where or 'the arguments'}: {message}",
        reason="ARGUMENTS",
        remedy=f"the tool takes {', '.join(schema['properties'])}",
        port=where,
    )


def _place(error: ValidationError) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return "".join(steps).removeprefix(".")
