"""The plan format that the prompt requests, and the deviations that are accepted.

The LLM writes an array of tasks, which may also contain notes:

    [{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "<file1>"}, "source": "read the sign"},
     {"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<text>-0", "speed": 1.5}, "source": "say it"},
     {"note": "unmapped", "text": "Nobody here can send mail.", "source": "and mail it"}]

- `task` is a name of the catalogue, `id` any whole number (new tasks are numbered from 0, or after existing
  ones), `dep` the ids whose outputs it needs or [-1], `source` the part of the request it covers.
- `args` maps ports and parameters to values. A value is a literal; `<file1>`, the name of an input (or its file name);
  or `<resource>-<id>`, an output of task id: the resource is an output name or modality (text, image, audio, video).
  A list of values for a port that takes one value creates one task for each.
- A note is `unmapped` (no task of the catalogue does this), `clarify` (a question to the user) or
  `chat` (an answer without tasks).

tests/service/test_planner_dialects.py lists what is accepted too.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.llm.prompt import Schema
from services.planner.llm.json_stream import ARGUMENTS, RawTask, task_name
from services.planner.task_spec import Parameter, Port, Spec

MAX_SOURCE_LENGTH = 300
"""Limit of characters of a task's source."""

MAX_NAME_LENGTH = 80
"""Limit of characters of a task's name."""

MAX_ARGUMENTS = 64
"""Limit of arguments of one task."""

MAX_NUMBER = 10**9
"""Ids must be smaller."""


@dataclass(frozen=True, slots=True)
class ParsedTask:
    """A task as written by the LLM, before names are resolved."""

    task: str
    wire_id: int | None
    needs: tuple[int, ...] | None
    """Ids of declared dependencies; None if not declared."""
    given: tuple[tuple[str, object], ...]
    """Names and values as written; the name is empty if there was none."""
    source: str


def parse_task(raw: RawTask) -> ParsedTask:
    """Parses the object of a task."""
    fields = raw.fields
    source = fields.get("source")
    return ParsedTask(
        task=" ".join(task_name(fields).split())[:MAX_NAME_LENGTH],
        wire_id=_id(fields.get("id", fields.get("task_id"))),
        needs=_needs(fields),
        given=tuple(_given(fields))[:MAX_ARGUMENTS],
        source=source.strip()[:MAX_SOURCE_LENGTH] if isinstance(source, str) else "",
    )


# ---------------------------------------------------------------- ids

_DEPENDENCIES = ("dep", "depends_on", "dependencies")
_NUMBER = re.compile(r"(?<!\d)(?<!^-)\d{1,9}(?!\d)")
"""A number in an id such as task-3; -1 is none."""


def _id(value: object) -> int | None:
    if isinstance(value, str):
        found = _NUMBER.search(value)
        value = int(found.group()) if found else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_NUMBER:
        return None
    return value


def _needs(fields: Mapping[str, object]) -> tuple[int, ...] | None:
    written = next((fields[key] for key in _DEPENDENCIES if fields.get(key) is not None), None)
    if written is None:
        return None
    items = written if isinstance(written, list) else [written]
    return tuple(dict.fromkeys(number for item in items if (number := _id(item)) is not None))[:MAX_ARGUMENTS]


# ---------------------------------------------------------------- arguments

_ASIDE = {"task", "tool", "name", "id", "task_id", "source", "reason", "thought", *_DEPENDENCIES}
"""Keys of a task that are no arguments, where its arguments are next to them."""


def _given(fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    if not any(key in fields for key in ARGUMENTS):
        yield from ((name, value) for name, value in fields.items() if name.lower() not in _ASIDE)
    for key in ARGUMENTS:
        yield from _pairs(fields.get(key))


def _pairs(written: object) -> Iterator[tuple[str, object]]:
    if isinstance(written, str) and written.lstrip().startswith("{"):
        written = _parsed(written)
    if isinstance(written, dict):
        yield from ((str(name), value) for name, value in written.items())
    elif isinstance(written, list):
        for item in written:
            yield from _pair(item)
    elif written is not None:
        yield "", written


def _pair(item: object) -> Iterator[tuple[str, object]]:
    if isinstance(item, dict) and isinstance(item.get("name"), str) and "value" in item:
        yield item["name"], item["value"]
    else:
        yield "", item


def _parsed(text: str) -> object:
    try:
        parsed = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return text
    return parsed if isinstance(parsed, dict) else text


# ---------------------------------------------------------------- schema

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
