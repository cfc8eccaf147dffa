"""URLs of artifacts, and their links in answers; images are embedded."""

import re
from collections.abc import Iterable, Sequence

from gateway.auth import signed_links
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.run_pb2 import TaskStatus
from protos.hugginggpt.v1.task_pb2 import Argument

MAX_ARTIFACTS = 50

_IMAGE = re.compile(r"image/(png|jpeg|gif|webp|bmp|avif)")
_MARKDOWN_CHARACTERS = re.compile(r"([\\\[\]()!`*_<>])")


def artifact_url(artifact: Artifact, site: str) -> str:
    """Returns the signed URL of an artifact, which works in browsers, too.

    Args:
        artifact: the artifact.
        site: scheme and host; empty for a relative URL.
    """
    return site + signed_links.path(artifact.sha256)


def output_artifacts(tasks: Iterable[TaskStatus]) -> list[Artifact]:
    """Returns the artifacts that no other task consumed, without duplicates, in the order of the tasks."""
    tasks = list(tasks)
    consumed = {
        key for status in tasks for argument in status.task.arguments.values() for key in _referenced_outputs(argument)
    }
    found = {
        value.artifact.sha256: value.artifact
        for status in tasks
        for port, value in sorted(status.result.outputs.items())
        if value.HasField("artifact") and (status.task.id, port) not in consumed
    }
    return list(found.values())[:MAX_ARTIFACTS]


def markdown(artifacts: Sequence[Artifact], site: str) -> str:
    """Renders artifacts as Markdown paragraphs; empty without artifacts."""
    return "".join(f"\n\n{_link(artifact, site)}" for artifact in artifacts)


def _link(artifact: Artifact, site: str) -> str:
    name = _MARKDOWN_CHARACTERS.sub(r"\\\1", artifact.name or "file")
    prefix = "!" if _IMAGE.fullmatch(artifact.media_type) else ""
    return f"{prefix}[{name}]({artifact_url(artifact, site)})"


def _referenced_outputs(argument: Argument) -> Iterable[tuple[int, str]]:
    for item in argument.list.items if argument.HasField("list") else (argument,):
        if item.HasField("reference"):
            yield item.reference.task_id, item.reference.output
