"""Outputs of tasks as named facts, for filling schemas."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.json_encoder import encode
from gateway.openai.links import artifact_url
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.run_pb2 import TaskStatus

MAX_FACTS = 2_000

_SYNONYMS = (
    frozenset({"label", "class", "category", "sentiment", "emotion", "topic", "classification", "prediction"}),
    frozenset({"score", "confidence", "probability", "certainty"}),
    frozenset({"box", "boundingbox", "bbox"}),
    frozenset({"objects", "detections", "detectedobjects"}),
    frozenset({"transcript", "transcription"}),
    frozenset({"translation", "translated", "translatedtext"}),
    frozenset({"caption", "description"}),
    frozenset({"url", "link", "href"}),
)
"""Groups of synonymous names; letters and digits only."""

_ANSWER = frozenset({"answer", "response", "message", "reply", "result", "output", "content", "explanation"})

_TEXTS: Mapping[str, str] = {
    "summarization": "summary",
    "translation": "translation",
    "automatic-speech-recognition": "transcript",
    "image-to-text": "caption",
    "video-to-text": "caption",
    "question-answering": "answer",
    "table-question-answering": "answer",
    "visual-question-answering": "answer",
    "document-question-answering": "answer",
}
"""Common name of a task's text output."""


@dataclass(frozen=True, slots=True)
class Fact:
    """An output of a task, or a part of it."""

    names: frozenset[str]
    """Names of the fact; lower-case letters and digits."""
    content: Any


def normalize_name(name: str) -> str:
    """Normalizes a name to lower-case letters and digits."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def synonyms(name: str) -> frozenset[str]:
    """Returns the normalized name and its synonyms."""
    normalized = normalize_name(name)
    return frozenset({normalized}).union(*(names for names in _SYNONYMS if normalized in names))


def collect_facts(tasks: Iterable[TaskStatus], answer: str, site: str) -> list[Fact]:
    """Collects facts: those of the last task first, the text answer last.

    Args:
        tasks: tasks with their results.
        answer: text answer; may be empty.
        site: scheme and host of this gateway, for artifact URLs.
    """
    found: list[Fact] = []
    for status in reversed([*tasks]):
        for port, value in sorted(status.result.outputs.items()):
            found += _facts_of(status, port, value, site)
    return [*found[:MAX_FACTS], *([Fact(_ANSWER, answer)] if answer else [])]


def _facts_of(status: TaskStatus, port: str, value: Value, site: str) -> Iterator[Fact]:
    kind = status.task.task
    names = {port, kind, f"{kind}{port}", f"task{status.task.id}{port}"}
    if value.HasField("artifact"):
        link = artifact_url(value.artifact, site)
        yield Fact(frozenset(map(normalize_name, (*names, f"{port}url", "url"))), link)
        yield from _parts(names, {**encode(value.artifact), "url": link})
    elif value.HasField("json"):
        yield from _parts(names, json.loads(value.json))
    else:
        yield from _parts({*names, _TEXTS.get(kind, port)} if port == "text" else names, value.text)


def _parts(names: Iterable[str], content: Any) -> Iterator[Fact]:
    """Yields a value and all its parts, breadth-first."""
    pending: list[tuple[frozenset[str], Any]] = [(frozenset(map(normalize_name, names)), content)]
    for at in range(MAX_FACTS):
        if at >= len(pending):
            return
        own, part = pending[at]
        yield Fact(own, part)
        if isinstance(part, dict):
            pending += [(frozenset({normalize_name(key)}), value) for key, value in part.items()]
        elif isinstance(part, list):
            pending += [(frozenset(), each) for each in part[:MAX_FACTS]]
