"""Artifacts as an answer shows them: pictures in place, all else as links."""

import re
from collections.abc import Iterable, Sequence

from starlette.requests import Request

from gateway.auth import signed_links
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.run_pb2 import TaskStatus
from protos.hugginggpt.v1.task_pb2 import Argument

MOST_SHOWN = 50

_PICTURE = re.compile(r"image/(png|jpeg|gif|webp|bmp|avif)")
_MARKS = re.compile(r"([\\\[\]()!`*_<>])")


def site(request: Request) -> str:
    """Scheme and host as the client wrote them."""
    return str(request.base_url).rstrip("/")


def address(artifact: Artifact, site: str) -> str:
    """Where an artifact is fetched, by a browser too.

    Args:
        artifact: it.
        site: scheme and host; empty for an address within the site.
    """
    return site + signed_links.path(artifact.sha256)


def made(tasks: Iterable[TaskStatus]) -> list[Artifact]:
    """What the tasks made for the reader, not for each other; each once, in their order."""
    tasks = list(tasks)
    passed_on = {key for status in tasks for argument in status.task.arguments.values() for key in _needed(argument)}
    found = {
        value.artifact.sha256: value.artifact
        for status in tasks
        for port, value in sorted(status.result.outputs.items())
        if value.HasField("artifact") and (status.task.id, port) not in passed_on
    }
    return list(found.values())[:MOST_SHOWN]


def markdown(artifacts: Sequence[Artifact], site: str) -> str:
    """Paragraphs of links and pictures, each before its line ends; empty without artifacts."""
    return "".join(f"\n\n{_one(artifact, site)}" for artifact in artifacts)


def _one(artifact: Artifact, site: str) -> str:
    name = _MARKS.sub(r"\\\1", artifact.name or "file")
    shown = "!" if _PICTURE.fullmatch(artifact.media_type) else ""
    return f"{shown}[{name}]({address(artifact, site)})"


def _needed(argument: Argument) -> Iterable[tuple[int, str]]:
    for one in argument.list.items if argument.HasField("list") else (argument,):
        if one.HasField("reference"):
            yield one.reference.task_id, one.reference.output
