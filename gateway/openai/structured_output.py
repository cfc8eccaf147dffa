"""A schema filled from facts: by names first, then by shape where what fits is surely meant; never by guessing."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.openai import json_schema as schemas
from gateway.openai.output_facts import Fact, alike, plain

MOST_STEPS = 8_000
"""What may be tried before a schema counts as too intricate."""

DEEPEST = 24

_CHECK_STEPS = 20
"""What a check against the schema counts for."""

_NUMBER_CHARACTERS = 40
_ABSENT = object()


class Unfillable(Exception):
    """What was asked for did not come out of the tasks."""


def filled(schema: Mapping[str, Any], given: Sequence[Fact]) -> Any:
    """JSON as the schema wants it.

    Args:
        schema: checked.
        given: what there is, the best first.

    Raises:
        Unfillable: naming what is missing.
    """
    filling = _Filling(schema, given)
    content = filling.part(schema, "", 0)
    if content is _ABSENT or not schemas.holds(schema, schema, content):
        missing = ", ".join(dict.fromkeys(filling.missing)) or "what was asked for"
        raise Unfillable(f"The results do not hold {missing}.")
    return content


class _Filling:
    def __init__(self, root: Mapping[str, Any], given: Sequence[Fact]) -> None:
        self._root = root
        self._given = given
        self._steps = 0
        self.missing: list[str] = []

    def part(self, schema: Any, name: str, depth: int) -> Any:
        """What there is for a part of the schema; _ABSENT if nothing."""
        schema = self._meant(schema, depth)
        for choice in self._choices(schema, depth):
            for fact in self._candidates(choice, name):
                content = self.fitted(choice, fact.content, depth + 1)
                if content is not _ABSENT and self._holds(choice, content):
                    return content
            content = self._assembled(choice, depth) if _is_object(choice) else _ABSENT
            if content is not _ABSENT:
                return content
        return None if _may_be_null(schema) else _ABSENT

    def fitted(self, schema: Any, content: Any, depth: int) -> Any:
        """Content in the schema's form; _ABSENT if it has another."""
        schema = self._meant(schema, depth)
        for choice in self._choices(schema, depth):
            found = self._as(choice, content, depth)
            if found is not _ABSENT:
                return found
        return None if content is None and _may_be_null(schema) else _ABSENT

    def as_object(self, schema: Mapping[str, Any], content: Any, depth: int) -> Any:
        if not isinstance(content, dict):
            return _ABSENT
        properties, known = schema.get("properties", {}), {plain(key): value for key, value in content.items()}
        if not properties:
            return content if schema.get("additionalProperties") is not False else _ABSENT
        found = {}
        for key, sub in properties.items():
            names = (each for each in (plain(key), *sorted(alike(key))) if each in known)
            same = known.get(next(names, ""), _ABSENT)
            value = _ABSENT if same is _ABSENT else self.fitted(sub, same, depth + 1)
            if value is not _ABSENT:
                found[key] = value
        if not found:
            return _ABSENT
        nulls = {key: None for key, sub in properties.items() if _may_be_null(self._meant(sub, depth))}
        whole = {**nulls, **found}
        return whole if set(schema.get("required", ())) <= whole.keys() else _ABSENT

    def as_list(self, schema: Mapping[str, Any], content: Any, depth: int) -> Any:
        if not isinstance(content, list):
            return _ABSENT
        one = schema.get("items", {})
        for items in (content, [_word(each) for each in content]):
            fitted = [self.fitted(one, each, depth + 1) for each in items]
            if _ABSENT not in fitted:
                return fitted[: int(schema.get("maxItems", len(fitted)))]
        return _ABSENT

    def _assembled(self, schema: Mapping[str, Any], depth: int) -> Any:
        """An object made of several facts."""
        content, required = {}, set(schema.get("required", ()))
        for key, sub in schema.get("properties", {}).items():
            value = self.part(sub, key, depth + 1)
            if value is not _ABSENT:
                content[key] = value
            elif key in required:
                self.missing.append(key)
        told = any(value is not None for value in content.values())
        return content if told and required <= content.keys() else _ABSENT

    def _candidates(self, schema: Mapping[str, Any], name: str) -> Iterator[Fact]:
        if not name:
            yield from self._given
            return
        exact, wanted = plain(name), alike(name)
        yield from (fact for fact in self._given if exact in fact.names)
        yield from (fact for fact in self._given if exact not in fact.names and not wanted.isdisjoint(fact.names))
        if self._tells(schema, 0):
            yield from self._given

    def _tells(self, schema: Any, depth: int) -> bool:
        """Whether what fits is surely meant: one of given words, or something with several named parts."""
        meant = self._meant(schema, depth)
        if meant.get("type") == "array":
            return self._tells(meant.get("items", {}), depth + 1)
        words = "enum" in meant and all(isinstance(each, str) for each in meant["enum"])
        return words or (_is_object(meant) and len(meant.get("required", ())) > 1)

    def _as(self, schema: Mapping[str, Any], content: Any, depth: int) -> Any:
        if "enum" in schema or "const" in schema:
            return _one_of(schema["enum"] if "enum" in schema else [schema["const"]], content)
        kinds = schema.get("type") or tuple(_FITS)
        for kind in (kinds,) if isinstance(kinds, str) else kinds:
            found = _FITS[kind](self, schema, content, depth) if kind in _FITS else _ABSENT
            if found is not _ABSENT:
                return found
        return _ABSENT

    def _meant(self, schema: Any, depth: int) -> Mapping[str, Any]:
        self._count(1, depth)
        if isinstance(schema, dict) and "$ref" in schema:
            return self._meant(schemas.resolved(self._root, schema["$ref"]), depth + 1)
        return schema if isinstance(schema, dict) else {}

    def _choices(self, schema: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
        if "anyOf" not in schema:
            yield schema
        for choice in schema.get("anyOf", ()):
            meant = self._meant(choice, depth + 1)
            if meant.get("type") != "null":
                yield from self._choices(meant, depth + 1)

    def _holds(self, schema: Mapping[str, Any], content: Any) -> bool:
        self._count(_CHECK_STEPS, 0)
        return schemas.holds(schema, self._root, content)

    def _count(self, steps: int, depth: int) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS or depth > DEEPEST:
            raise Unfillable("The results cannot be fitted into so intricate a schema.")


def _as_text(_filling: _Filling, _schema: Mapping[str, Any], content: Any, _depth: int) -> Any:
    return content if isinstance(content, str) else _ABSENT


def _as_number(_filling: _Filling, _schema: Mapping[str, Any], content: Any, _depth: int) -> Any:
    if isinstance(content, str) and len(content) < _NUMBER_CHARACTERS:
        try:
            content = float(content)
        except ValueError:
            return _ABSENT
    known = isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
    return content if known else _ABSENT


def _as_integer(filling: _Filling, schema: Mapping[str, Any], content: Any, depth: int) -> Any:
    number = _as_number(filling, schema, content, depth)
    return int(number) if number is not _ABSENT and number == int(number) else _ABSENT


def _as_boolean(_filling: _Filling, _schema: Mapping[str, Any], content: Any, _depth: int) -> Any:
    return content if isinstance(content, bool) else _ABSENT


_FITS: Mapping[str, Callable[[_Filling, Mapping[str, Any], Any, int], Any]] = {
    "object": _Filling.as_object,
    "array": _Filling.as_list,
    "boolean": _as_boolean,
    "integer": _as_integer,
    "number": _as_number,
    "string": _as_text,
}


def _one_of(allowed: Sequence[Any], content: Any) -> Any:
    """The allowed value that is meant, whatever its case."""
    if content in allowed:
        return content
    if not isinstance(content, str):
        return _ABSENT
    return next((each for each in allowed if isinstance(each, str) and plain(each) == plain(content)), _ABSENT)


def _word(content: Any) -> Any:
    """Of an object its label: often a list of words is all that is wanted."""
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
