"""The part of JSON Schema that structured answers may use, as OpenAI's does; what could cost without end is refused."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry

from gateway.json_text import refuse

MOST_BYTES = 64 * 1024
MOST_NODES = 1_000

MOST_TURNS = 2_000
"""References and choices that one check of content may take: they can double with each level of a schema."""

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
_WITH_NAMES = frozenset({"properties", "$defs", "definitions"})
"""Keywords whose keys are names of the author's."""

_DATA = frozenset({"enum", "const", "default", "examples"})
"""Keywords that hold no schemas."""


def check(schema: Any, where: str) -> None:
    """Refuses a schema that cannot be filled.

    Raises:
        InvalidRequest: SCHEMA, naming what is wrong with it.
    """
    if not isinstance(schema, dict):
        refuse(where, "is not a JSON Schema", reason="SCHEMA", remedy="send an object")
    for number, (keyword, value) in enumerate(_keywords(schema)):
        if number > MOST_NODES:
            refuse(where, "has too many parts", reason="SCHEMA", remedy="ask for less at once")
        if keyword in _REFUSED:
            refuse(
                where, f"uses {keyword}", reason="SCHEMA", remedy="write it without, with anyOf where there is a choice"
            )
        if keyword == "$ref" and resolved(schema, value) is None:
            refuse(where, "refers to what is not among its $defs", reason="SCHEMA", remedy="use #/$defs/NAME")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = "/".join(map(str, error.path))
        refuse(where, f"is not a JSON Schema (at {place or 'its root'})"[:300], reason="SCHEMA", remedy="mend it")


def resolved(root: Mapping[str, Any], reference: Any) -> Any:
    """The definition a reference means; None if there is none."""
    found = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    definitions = root.get(found[1]) if found else None
    return definitions.get(found[2]) if found and isinstance(definitions, dict) else None


def holds(schema: Mapping[str, Any], root: Mapping[str, Any], content: Any) -> bool:
    """Whether content is what a part of a schema asks for."""
    whole = {**schema, **{name: root[name] for name in ("$defs", "definitions") if name in root}}
    turns = _turns.set(iter(range(MOST_TURNS)))
    try:
        return next(_Bounded(whole, registry=Registry()).iter_errors(content), None) is None
    except (_EndlessError, RecursionError):
        return False
    finally:
        _turns.reset(turns)


class _EndlessError(Exception):
    """A check has taken all its turns."""


_turns: ContextVar[Iterator[int]] = ContextVar("turns")


def _bounded(check: Callable[..., Any]) -> Callable[..., Iterator[ValidationError]]:
    """A keyword's check that takes a turn each time."""

    def bounded(*asked: Any) -> Iterator[ValidationError]:
        if next(_turns.get(), None) is None:
            raise _EndlessError
        yield from check(*asked) or ()

    return bounded


_Bounded = extend(  # type: ignore[no-untyped-call]  # the stubs say nothing of it
    Draft202012Validator,
    {keyword: _bounded(Draft202012Validator.VALIDATORS[keyword]) for keyword in ("$ref", "anyOf")},
)


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every part of a schema, without a name, and every keyword in it; names of properties are none."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            yield "", part
            for keyword, value in part.items():
                yield keyword, value
                if keyword in _WITH_NAMES and isinstance(value, dict):
                    waiting += value.values()
                elif keyword not in _DATA:
                    waiting.append(value)
