"""Fills a JSON schema from facts: by name first, then by shape where the match is unambiguous."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.openai import json_schema as schemas
from gateway.openai.output_facts import Fact, normalize_name, synonyms

MAX_STEPS = 8_000
"""Step limit, after which a schema is too complex."""

MAX_DEPTH = 24

_CHECK_STEPS = 20
"""Steps that one validation counts for."""

_NUMBER_CHARACTERS = 40
_ABSENT = object()


class UnfillableSchema(Exception):
    """The results do not contain what the schema requires."""


def fill_schema(schema: Mapping[str, Any], facts: Sequence[Fact]) -> Any:
    """Fills a schema.

    Args:
        schema: a supported schema.
        facts: facts, best first.

    Raises:
        UnfillableSchema: a required part is missing; the message names it.
    """
    filler = _SchemaFiller(schema, facts)
    content = filler.part(schema, "", 0)
    if content is _ABSENT or not schemas.is_valid(schema, schema, content):
        missing = ", ".join(dict.fromkeys(filler.missing)) or "the requested data"
        raise UnfillableSchema(f"The results do not contain {missing}.")
    return content


class _SchemaFiller:
    def __init__(self, root: Mapping[str, Any], facts: Sequence[Fact]) -> None:
        self._root = root
        self._facts = facts
        self._steps = 0
        self.missing: list[str] = []

    def part(self, schema: Any, name: str, depth: int) -> Any:
        """Fills a part of the schema; _ABSENT if no fact fits."""
        schema = self._resolve(schema, depth)
        for choice in self._choices(schema, depth):
            for fact in self._candidates(choice, name):
                content = self.convert(choice, fact.content, depth + 1)
                if content is not _ABSENT and self._is_valid(choice, content):
                    return content
            content = self._assemble(choice, depth) if _is_object(choice) else _ABSENT
            if content is not _ABSENT:
                return content
        return None if _may_be_null(schema) else _ABSENT

    def convert(self, schema: Any, content: Any, depth: int) -> Any:
        """Converts content to the schema; _ABSENT if it does not fit."""
        schema = self._resolve(schema, depth)
        for choice in self._choices(schema, depth):
            found = self._as(choice, content, depth)
            if found is not _ABSENT:
                return found
        return None if content is None and _may_be_null(schema) else _ABSENT

    def as_object(self, schema: Mapping[str, Any], content: Any, depth: int) -> Any:
        if not isinstance(content, dict):
            return _ABSENT
        properties, known = schema.get("properties", {}), {normalize_name(key): value for key, value in content.items()}
        if not properties:
            return content if schema.get("additionalProperties") is not False else _ABSENT
        found = {}
        for key, sub in properties.items():
            names = (each for each in (normalize_name(key), *sorted(synonyms(key))) if each in known)
            match = known.get(next(names, ""), _ABSENT)
            value = _ABSENT if match is _ABSENT else self.convert(sub, match, depth + 1)
            if value is not _ABSENT:
                found[key] = value
        if not found:
            return _ABSENT
        nulls = {key: None for key, sub in properties.items() if _may_be_null(self._resolve(sub, depth))}
        complete = {**nulls, **found}
        return complete if set(schema.get("required", ())) <= complete.keys() else _ABSENT

    def as_list(self, schema: Mapping[str, Any], content: Any, depth: int) -> Any:
        if not isinstance(content, list):
            return _ABSENT
        one = schema.get("items", {})
        for items in (content, [_label(each) for each in content]):
            fitted = [self.convert(one, each, depth + 1) for each in items]
            if _ABSENT not in fitted:
                return fitted[: int(schema.get("maxItems", len(fitted)))]
        return _ABSENT

    def _assemble(self, schema: Mapping[str, Any], depth: int) -> Any:
        """Assembles an object from several facts."""
        content, required = {}, set(schema.get("required", ()))
        for key, sub in schema.get("properties", {}).items():
            value = self.part(sub, key, depth + 1)
            if value is not _ABSENT:
                content[key] = value
            elif key in required:
                self.missing.append(key)
        has_value = any(value is not None for value in content.values())
        return content if has_value and required <= content.keys() else _ABSENT

    def _candidates(self, schema: Mapping[str, Any], name: str) -> Iterator[Fact]:
        if not name:
            yield from self._facts
            return
        exact, names = normalize_name(name), synonyms(name)
        yield from (fact for fact in self._facts if exact in fact.names)
        yield from (fact for fact in self._facts if exact not in fact.names and not names.isdisjoint(fact.names))
        if self._is_unambiguous(schema, 0):
            yield from self._facts

    def _is_unambiguous(self, schema: Any, depth: int) -> bool:
        """Whether a fit by shape is unambiguous: an enum of strings, or an object with several required properties."""
        resolved = self._resolve(schema, depth)
        if resolved.get("type") == "array":
            return self._is_unambiguous(resolved.get("items", {}), depth + 1)
        is_enum = "enum" in resolved and all(isinstance(each, str) for each in resolved["enum"])
        return is_enum or (_is_object(resolved) and len(resolved.get("required", ())) > 1)

    def _as(self, schema: Mapping[str, Any], content: Any, depth: int) -> Any:
        if "enum" in schema or "const" in schema:
            return _one_of(schema["enum"] if "enum" in schema else [schema["const"]], content)
        kinds = schema.get("type") or tuple(_CONVERTERS)
        for kind in (kinds,) if isinstance(kinds, str) else kinds:
            found = _CONVERTERS[kind](self, schema, content, depth) if kind in _CONVERTERS else _ABSENT
            if found is not _ABSENT:
                return found
        return _ABSENT

    def _resolve(self, schema: Any, depth: int) -> Mapping[str, Any]:
        self._count(1, depth)
        if isinstance(schema, dict) and "$ref" in schema:
            return self._resolve(schemas.resolve_reference(self._root, schema["$ref"]), depth + 1)
        return schema if isinstance(schema, dict) else {}

    def _choices(self, schema: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
        if "anyOf" not in schema:
            yield schema
        for choice in schema.get("anyOf", ()):
            resolved = self._resolve(choice, depth + 1)
            if resolved.get("type") != "null":
                yield from self._choices(resolved, depth + 1)

    def _is_valid(self, schema: Mapping[str, Any], content: Any) -> bool:
        self._count(_CHECK_STEPS, 0)
        return schemas.is_valid(schema, self._root, content)

    def _count(self, steps: int, depth: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS or depth > MAX_DEPTH:
            raise UnfillableSchema("The schema is too complex to fill from the results.")


def _as_text(_filling: _SchemaFiller, _schema: Mapping[str, Any], content: Any, _depth: int) -> Any:
    return content if isinstance(content, str) else _ABSENT


def _as_number(_filling: _SchemaFiller, _schema: Mapping[str, Any], content: Any, _depth: int) -> Any:
    if isinstance(content, str) and len(content) < _NUMBER_CHARACTERS:
        try:
            content = float(content)
        except ValueError:
            return _ABSENT
    known = isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
    return content if known else _ABSENT


def _as_integer(filler: _SchemaFiller, schema: Mapping[str, Any], content: Any, depth: int) -> Any:
    number = _as_number(filler, schema, content, depth)
    return int(number) if number is not _ABSENT and number == int(number) else _ABSENT


def _as_boolean(_filling: _SchemaFiller, _schema: Mapping[str, Any], content: Any, _depth: int) -> Any:
    return content if isinstance(content, bool) else _ABSENT


_CONVERTERS: Mapping[str, Callable[[_SchemaFiller, Mapping[str, Any], Any, int], Any]] = {
    "object": _SchemaFiller.as_object,
    "array": _SchemaFiller.as_list,
    "boolean": _as_boolean,
    "integer": _as_integer,
    "number": _as_number,
    "string": _as_text,
}


def _one_of(allowed: Sequence[Any], content: Any) -> Any:
    """The allowed value that equals the content, ignoring case and punctuation."""
    if content in allowed:
        return content
    if not isinstance(content, str):
        return _ABSENT
    return next(
        (each for each in allowed if isinstance(each, str) and normalize_name(each) == normalize_name(content)), _ABSENT
    )


def _label(content: Any) -> Any:
    """The label of an object: schemas often ask for a list of labels."""
    if not isinstance(content, dict):
        return content
    return next((content[key] for key in ("label", "word", "text") if key in content), content)


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", ())
    return (
        kinds == "null"
        or (isinstance(kinds, list) and "null" in kinds)
        or None in schema.get("enum", ())
        or any(isinstance(choice, dict) and choice.get("type") == "null" for choice in schema.get("anyOf", ()))
    )


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or "properties" in schema
