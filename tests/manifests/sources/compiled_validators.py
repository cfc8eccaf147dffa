"""Reads schemas from validators that ajv compiled to JavaScript: a function per schema, a file per type.

A function checks the keywords of its schema, each with the keyword and its value in the error that it reports, and
calls other functions for the properties and items of its value, and for the type that the schema refers to.
"""

import json
import re
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

_CALL = re.compile(r"(validate\d+)\(data(?:\.([\w$]+)|\[\"([^\"]+)\"\]|\[(i0)\]|\[(key0)\])?,")
_ERROR = re.compile(r'keyword:"(\w+)",params:\{(?:comparison:"[<>]=",)?(\w+):("(?:[^"\\]|\\.)*"|[\w.]+)')
_VALUES = re.compile(r"let (\w+)=(\[.*?\]);")
_IMPORT = re.compile(r'import\{validate as (validate\d+)\}from"([^"]+)"')
_LIMITS = {"maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minimum", "pattern", "type"}
_ANY_OBJECT: Schema = {"type": "object"}


def read_schema(file: Path) -> Schema:
    """Returns the schema of the type whose validator a file contains. Types of other packages become any object."""
    text = file.read_text(encoding="utf-8")
    match = re.search(r"export const validate=(validate\d+);", text)
    assert match, f"{file} is no compiled validator"
    return _Reader(file, text).schema(match[1])


class _Reader:
    """Turns the functions of one file into schemas."""

    def __init__(self, file: Path, text: str) -> None:
        self._folder = file.parent
        self._bodies = {each[0]: each[1] for each in _functions(text)}
        self._imports = dict(_IMPORT.findall(text))
        self._values = {name: json.loads(value) for name, value in _VALUES.findall(text)}

    def schema(self, function: str) -> Schema:
        if function in self._imports:
            path = self._imports[function]
            return read_schema(self._folder / path) if path.startswith(".") else _ANY_OBJECT
        calls = _CALL.findall(self._bodies[function])
        own = self._part_keywords(calls) | self._value_keywords(self._bodies[function])
        referenced: Schema = {}  # the types that this one is, or embeds
        for callee, *part in calls:
            referenced |= {} if any(part) else self.schema(callee)
        merged = {**referenced, **own}
        if properties := {**referenced.get("properties", {}), **own.get("properties", {})}:
            merged |= {"properties": properties, "additionalProperties": False}
        if required := {*referenced.get("required", ()), *own.get("required", ())}:
            merged["required"] = sorted(required)
        return merged

    def _part_keywords(self, calls: list[tuple[str, ...]]) -> Schema:
        """Keywords for the parts of a value: calls that check a property, an item or the value of any key."""
        found: Schema = {}
        for callee, name, quoted, item, key in calls:
            if name or quoted:
                found.setdefault("properties", {})[name or quoted] = self.schema(callee)
            elif item or key:
                found["items" if item else "additionalProperties"] = self.schema(callee)
        return found

    def _value_keywords(self, body: str) -> Schema:
        """Keywords for the value itself, from the errors that the function reports."""
        found: Schema = {}
        for keyword, _, value in _ERROR.findall(body):
            if keyword == "required":
                found.setdefault("required", []).append(json.loads(value))
            elif keyword == "enum":
                found["enum"] = self._values[value]
            elif keyword in _LIMITS:
                found[keyword] = json.loads(value)
            else:
                assert keyword == "format", f"{self._folder}: unknown keyword {keyword}"
        return found


def _functions(text: str) -> list[tuple[str, str]]:
    """Returns names and bodies; a body ends where the next function, import or value list starts."""
    parts = re.split(r"function (validate\d+)\(data,", text)
    return list(zip(parts[1::2], parts[2::2], strict=True))
