"""The format a plan is asked for in, and how far from it a model may stray.

The model writes an array of tasks; remarks may stand among them:

    [{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "<file1>"}, "source": "read the sign"},
     {"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<text>-0", "speed": 1.5}, "source": "say it"},
     {"note": "unmapped", "text": "Nobody here can send mail.", "source": "and mail it"}]

- `task` is a name of the catalogue, `id` any whole number (new tasks are numbered from 0, or after those that stand
  already), `dep` the ids whose outputs it needs or [-1], `source` the words of the request it came from.
- `args` names ports and parameters. A value is a literal; `<file1>`, the name of an input (its file name is as good);
  or `<resource>-<id>`, an output of task id: resource is the output's name or its modality (text, image, audio, video).
  A list of values for a port that takes one makes one task each.
- A note is `unmapped` (no task of the catalogue does this), `clarify` (a question that must be answered first) or
  `chat` (nothing to run, just an answer).

Also understood: `<GENERATED>-0`, `<GENERATED-0>`, `{{task_0.text}}` and their like, ids as text, missing ids or deps.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from services.planner.llm.json_stream import ARGUMENTS, RawTask, named

SOURCE_LENGTH = 300
"""Most characters kept of the words a task came from."""

NAME_LENGTH = 80
"""Most characters kept of a task's name."""

MOST_GIVEN = 64
"""Most arguments read of one task."""

LARGEST = 10**9
"""Ids are smaller."""


class Wrong(NamedTuple):
    """One thing that is wrong with a task, and what to do about it."""

    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a task as the model wrote it, numbered as the model does; no id means the plan itself."""

    wire_id: int | None
    task: str
    message: str
    remedy: str
    source: str = ""

    def __str__(self) -> str:
        where = f"task {self.wire_id} ({self.task}): " if self.wire_id is not None else ""
        return f"{where}{self.message} ({self.remedy})"


@dataclass(frozen=True, slots=True)
class Sketch:
    """A task as the model means it, nothing looked up yet."""

    task: str
    wire_id: int | None
    needs: tuple[int, ...] | None
    """The ids it says it depends on; None if it does not say."""
    given: tuple[tuple[str, object], ...]
    """Names and values as written; the name is empty where there was none."""
    source: str


def sketch(raw: RawTask) -> Sketch:
    """What a task's object says."""
    fields = raw.fields
    source = fields.get("source")
    return Sketch(
        task=" ".join(named(fields).split())[:NAME_LENGTH],
        wire_id=_id(fields.get("id", fields.get("task_id"))),
        needs=_needs(fields),
        given=tuple(_given(fields))[:MOST_GIVEN],
        source=source.strip()[:SOURCE_LENGTH] if isinstance(source, str) else "",
    )


# ---------------------------------------------------------------- ids

_DEPENDENCIES = ("dep", "deps", "depends_on", "dependencies", "dependency")
_NUMBERS = re.compile(r"(?<![\d.-])-?\d{1,9}(?!\d)")


def _id(value: object) -> int | None:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(-?\d{1,9})(?:\.0*)?\s*", value) or re.search(r"(?<!\d)(\d{1,9})(?!\d)", value)
        value = int(found.group(1)) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LARGEST:
        return None
    return int(value) if value == int(value) else None


def _needs(fields: Mapping[str, object]) -> tuple[int, ...] | None:
    written = next((fields[key] for key in _DEPENDENCIES if fields.get(key) is not None), None)
    if written is None:
        return None
    if isinstance(written, str):
        items: list[object] = list(_NUMBERS.findall(written))
    else:
        items = written if isinstance(written, list) else [written]
    return tuple(dict.fromkeys(number for item in items if (number := _id(item)) is not None))[:MOST_GIVEN]


# ---------------------------------------------------------------- arguments

_ASIDE = {
    *("task", "task_name", "tool", "name", "id", "task_id", "source", "reason", "description", "comment", "note"),
    *("thought", "type", "model", "explanation", *_DEPENDENCIES),
}


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
    elif isinstance(item, dict) and len(item) == 1:
        yield from item.items()
    else:
        yield "", item


def _parsed(text: str) -> object:
    try:
        parsed = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return text
    return parsed if isinstance(parsed, dict) else text
