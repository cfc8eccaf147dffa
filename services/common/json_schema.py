"""The subset of JSON Schema for structured output, as in OpenAI's API, with bounded validation cost."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NoReturn

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry

from services.common import strict_json
from services.common.errors import InvalidRequest

MAX_CHARACTERS = 64 * 1024
MAX_NODES = 1_000

MAX_STEPS = 2_000
"""Limit of references and choices per validation: their number can double with each level of a schema."""

_MAX_PROBLEM_CHARACTERS = 300

_REFUSED = frozenset(
    {
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "pattern",
        "patternProperties",
        "propertyNames",
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$dynamicRef",
        "$dynamicAnchor",
        "$anchor",
        "$id",
    }
)
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/~]+)")
_NAME_MAPS = frozenset({"properties", "$defs", "definitions"})
"""Keywords whose keys are names, not keywords."""

_DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data, not schemas."""


def check(schema: Any, where: str) -> None:
    """Rejects unsupported schemas.

    Raises:
        InvalidRequest: SCHEMA, with the unsupported part.
    """
    if not isinstance(schema, dict):
        _refuse(where, "is not a JSON Schema", remedy="send an object")
    for number, (keyword, value) in enumerate(_keywords(schema)):
        if number > MAX_NODES:
            _refuse(where, f"has more than {MAX_NODES} parts", remedy="use a smaller schema")
        if keyword in _REFUSED:
            _refuse(where, f"uses {keyword}", remedy="leave it out; use anyOf for alternatives")
        if keyword == "$ref" and resolve_reference(schema, value) is None:
            _refuse(where, "has a reference outside of its $defs", remedy="use #/$defs/NAME")
    if len(json.dumps(schema, ensure_ascii=False)) > MAX_CHARACTERS:
        _refuse(where, "is too long", remedy="use a smaller schema")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        path = "/".join(map(str, error.path))
        _refuse(where, f"is not a JSON Schema (at {path or 'its root'})"[:300], remedy="correct the schema")


def _refuse(where: str, what: str, remedy: str) -> NoReturn:
    raise InvalidRequest(f"{where} {what}", reason="SCHEMA", remedy=remedy, port=where)


def resolve_reference(root: Mapping[str, Any], reference: Any) -> Any:
    """Resolves a reference to a definition; None if it does not exist."""
    found = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    definitions = root.get(found[1]) if found else None
    return definitions.get(found[2]) if found and isinstance(definitions, dict) else None


def find_problem(schema: Mapping[str, Any], text: str) -> str:
    """Returns why a text is not JSON that is valid for a checked schema; empty if it is."""
    token = _steps_left.set(iter(range(MAX_STEPS)))
    try:
        content = strict_json.read(text)
        error = next(_BoundedValidator(schema, registry=Registry()).iter_errors(content), None)
    except ValueError as invalid:
        return f"it is not JSON ({invalid})"
    except (_TooManySteps, RecursionError):
        return "the schema is too complex to check the answer"
    finally:
        _steps_left.reset(token)
    return f"{error.json_path}: {error.message}"[:_MAX_PROBLEM_CHARACTERS] if error else ""


class _TooManySteps(Exception):
    """A validation has used up its steps."""


_steps_left: ContextVar[Iterator[int]] = ContextVar("steps_left")


def _bounded(check: Callable[..., Any]) -> Callable[..., Iterator[ValidationError]]:
    """Wraps the check of a keyword so that each call uses a step."""

    def bounded(*arguments: Any) -> Iterator[ValidationError]:
        if next(_steps_left.get(), None) is None:
            raise _TooManySteps
        yield from check(*arguments) or ()

    return bounded


_BoundedValidator = extend(  # type: ignore[no-untyped-call]  # untyped in the stubs
    Draft202012Validator,
    {keyword: _bounded(Draft202012Validator.VALIDATORS[keyword]) for keyword in ("$ref", "anyOf")},
)


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yields every subschema, with an empty keyword, and every keyword with its value."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            yield "", part
            for keyword, value in part.items():
                yield keyword, value
                if keyword in _NAME_MAPS and isinstance(value, dict):
                    pending += value.values()
                elif keyword not in _DATA_KEYWORDS:
                    pending.append(value)
