"""Labelled requests: files with one JSON object per line."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHAPE = '{"id": "7", "request": "…", "type": "single|chain|dag", "tasks": ["…"], "links": [["source", "target"]]}'
"""Example of a line; all fields but id and request are optional."""


class BadLines(Exception):
    """A file cannot be evaluated; the message names file, line and remedy."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Names of tasks in order, and links between them; tasks with the same name count as one node."""

    tasks: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self.tasks)

    @property
    def edges(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.links)

    def same(self, other: "Graph") -> bool:
        """Whether both have the same nodes and edges."""
        return (self.nodes, self.edges) == (other.nodes, other.edges)


@dataclass(frozen=True, slots=True)
class Attached:
    """A file attached to a request."""

    name: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A right plan."""

    graph: Graph
    arguments: tuple[Mapping[str, Any], ...] | None = None
    """Arguments of each task by port or parameter, with its index in graph.tasks as "task"; None if unlabelled."""


@dataclass(frozen=True, slots=True)
class Line:
    """A request with its label."""

    id: str | int
    request: str
    type: str = ""
    label: Answer | None = None
    accept: tuple[Answer, ...] = ()
    """Other plans that are also right."""
    files: tuple[Attached, ...] | None = None
    """None: the line lists no files; the text may name some."""
    expect: str = "plan"
    """The right reaction: plan, clarify, unmapped or chat."""
    language: str = ""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All right plans, the label first; none if there is no label."""
        return (self.label, *self.accept) if self.label else ()


def read(path: Path) -> list[Line]:
    """Reads the lines of a file, without empty ones.

    Raises:
        BadLines: the file or one of its lines is invalid.
    """
    try:
        texts = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadLines(
            f"{path} cannot be read ({error}): name a file in UTF-8 with one JSON object per line"
        ) from error
    lines = [_line(text, f"{path}, line {number}") for number, text in enumerate(texts, start=1) if text.strip()]
    if not lines:
        raise BadLines(f"{path} has no lines: write one JSON object per line, such as {SHAPE}")
    return lines


def _line(text: str, place: str) -> Line:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLines(f"{place} is not JSON ({error}): write one whole object per line, such as {SHAPE}") from error
    if not isinstance(entry, dict):
        raise BadLines(f"{place} is {type(entry).__name__}, not an object: write it as {SHAPE}")
    if not isinstance(entry.get("id"), str | int) or not isinstance(entry.get("request"), str):
        raise BadLines(f"{place} needs a text or number as id and a text as request: write it as {SHAPE}")
    label, expect = _answer(entry, place), _expected(entry, place)
    return Line(
        id=entry["id"],
        request=entry["request"],
        type=str(entry.get("type") or ""),
        label=Answer(Graph()) if label is None and expect != "plan" else label,
        accept=tuple(_accepted(entry, place)),
        files=_files(entry, place),
        expect=expect,
        language=str(entry.get("language") or ""),
    )


def _accepted(entry: Mapping[str, Any], place: str) -> Iterator[Answer]:
    for other in entry.get("accept") or ():
        answer = _answer(other, place) if isinstance(other, Mapping) else None
        if answer is None:
            raise BadLines(f'{place}: accept must be a list of plans, each with "tasks" and "links"')
        yield answer


def _answer(entry: Mapping[str, Any], place: str) -> Answer | None:
    tasks, links = entry.get("tasks"), entry.get("links")
    if tasks is None:
        return None
    if not isinstance(tasks, list) or not all(isinstance(name, str) for name in tasks):
        raise BadLines(f'{place}: tasks must be a list of names, such as ["Translation"]; leave it out if unknown')
    if links is None and len(tasks) > 1:
        raise BadLines(f"{place} has several tasks and no links: add the links, or [] if none feeds another")
    if not isinstance(links or [], list) or not all(_is_link(link, tasks) for link in links or []):
        raise BadLines(f'{place}: links must be pairs of tasks, by name or position, such as [["A", "B"]] or [[0, 1]]')
    pairs = ((_name(source, tasks), _name(target, tasks)) for source, target in links or [])
    return Answer(Graph(tuple(tasks), tuple(pairs)), _arguments(entry, len(tasks), place))


def _is_link(link: Any, tasks: list[str]) -> bool:
    known = [*tasks, *range(len(tasks))]
    return isinstance(link, list) and len(link) == len(("source", "target")) and all(end in known for end in link)


def _name(end: str | int, tasks: list[str]) -> str:
    return tasks[end] if isinstance(end, int) else end


def _files(entry: Mapping[str, Any], place: str) -> tuple[Attached, ...] | None:
    files = entry.get("files")
    if files is None:
        return None
    try:
        return tuple(Attached(str(file["name"]), str(file["media_type"])) for file in files)
    except (KeyError, TypeError) as error:
        shape = '[{"name": "a.png", "media_type": "image/png"}]'
        raise BadLines(f"{place}: files must be written as {shape}") from error


def _arguments(entry: Mapping[str, Any], tasks: int, place: str) -> tuple[Mapping[str, Any], ...] | None:
    arguments = entry.get("arguments")
    if arguments is None:
        return None
    if not isinstance(arguments, list) or not all(_is_argument(one, range(tasks)) for one in arguments):
        shape = '[{"task": 0, "image": {"file": "a.png"}}]'
        raise BadLines(f"{place}: arguments must be written as {shape}, each number one of the tasks' (from 0)")
    return tuple(arguments)


def _is_argument(one: Any, known: range) -> bool:
    if not isinstance(one, dict) or one.get("task") not in known:
        return False
    values = [value for value in one.values() if isinstance(value, dict)]
    return all(value["output_of"] in known for value in values if "output_of" in value)


def _expected(entry: Mapping[str, Any], place: str) -> str:
    expect = entry.get("expect", "plan")
    if expect not in ("plan", "clarify", "unmapped", "chat"):
        raise BadLines(f"{place}: expect must be plan, clarify, unmapped or chat, or be left out for plan")
    return str(expect)
