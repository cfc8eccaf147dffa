"""What tasks gave, as things one can ask for by name."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.json_encoder import encode
from gateway.openai.links import address
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.run_pb2 import TaskStatus

MOST_FACTS = 2_000

_ALIKE = (
    frozenset({"label", "class", "category", "sentiment", "emotion", "topic", "classification", "prediction"}),
    frozenset({"score", "confidence", "probability", "certainty"}),
    frozenset({"box", "boundingbox", "bbox"}),
    frozenset({"objects", "detections", "detectedobjects"}),
    frozenset({"transcript", "transcription"}),
    frozenset({"translation", "translated", "translatedtext"}),
    frozenset({"caption", "description"}),
    frozenset({"url", "link", "href"}),
)
"""Names under which the same is known; letters and digits only."""

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
"""What the text of a kind of task is called by people."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something a task gave, or a part of it."""

    names: frozenset[str]
    """By which it can be asked for; letters and digits in lower case."""
    content: Any


def plain(name: str) -> str:
    """A name without its spelling."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def alike(name: str) -> frozenset[str]:
    """A name, and those that mean the same."""
    known = plain(name)
    return frozenset({known}).union(*(names for names in _ALIKE if known in names))


def known(tasks: Iterable[TaskStatus], answer: str, site: str) -> list[Fact]:
    """What there is: of the last task first, the answer in words last.

    Args:
        tasks: with their results.
        answer: empty if there is none.
        site: where artifacts are fetched.
    """
    found: list[Fact] = []
    for status in reversed([*tasks]):
        for port, value in sorted(status.result.outputs.items()):
            found += _of(status, port, value, site)
    return [*found[:MOST_FACTS], *([Fact(_ANSWER, answer)] if answer else [])]


def _of(status: TaskStatus, port: str, value: Value, site: str) -> Iterator[Fact]:
    kind = status.task.task
    names = {port, kind, f"{kind}{port}", f"task{status.task.id}{port}"}
    if value.HasField("artifact"):
        link = address(value.artifact, site)
        yield Fact(frozenset(map(plain, (*names, f"{port}url", "url"))), link)
        yield from _parts(names, {**encode(value.artifact), "url": link})
    elif value.HasField("json"):
        yield from _parts(names, json.loads(value.json))
    else:
        yield from _parts({*names, _TEXTS.get(kind, port)} if port == "text" else names, value.text)


def _parts(names: Iterable[str], content: Any) -> Iterator[Fact]:
    """A result and all its parts, the whole first."""
    waiting: list[tuple[frozenset[str], Any]] = [(frozenset(map(plain, names)), content)]
    for at in range(MOST_FACTS):
        if at >= len(waiting):
            return
        own, part = waiting[at]
        yield Fact(own, part)
        if isinstance(part, dict):
            waiting += [(frozenset({plain(key)}), value) for key, value in part.items()]
        elif isinstance(part, list):
            waiting += [(frozenset(), each) for each in part[:MOST_FACTS]]
