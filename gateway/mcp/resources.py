"""The MCP resources and their URIs: files, and the answers and outputs of runs."""

import base64
import re
from dataclasses import dataclass

from mcp.types import (
    BlobResourceContents,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from gateway.core import artifact_links
from gateway.core.files import FileQuery, FileService, StoredFile
from gateway.core.runs import RunOperations
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import NotFound
from services.common.media_types import is_text

SCHEME = "hugginggpt"
ARTIFACT = f"{SCHEME}://artifacts/{{sha256}}"
ANSWER = f"{SCHEME}://runs/{{run_id}}/answer"
OUTPUT = f"{SCHEME}://runs/{{run_id}}/tasks/{{task_id}}/{{output}}"

_ARTIFACT = re.compile(rf"(?:{SCHEME}://artifacts/)?([0-9a-f]{{64}})(?:\?tenant=\S*)?")
"""Ignores the signature of a signed download URL."""
_RUN_TEXT = re.compile(rf"{SCHEME}://runs/(run_\w{{1,100}})/(?:answer|tasks/([1-9]\d{{0,8}})/([\w.-]{{1,100}}))")

READABLE_BYTES = 1_000_000
"""Size limit of a file that is returned as content; a larger one is returned as a URL."""

PAGE_SIZE = 50

TEMPLATES = (
    (ARTIFACT, "artifact", "An input or output file of a run."),
    (ANSWER, "answer", "The full answer of a run."),
    (OUTPUT, "output", "The full content of a task's output."),
)


@dataclass(frozen=True)
class RunText:
    """Reference to the answer or to an output of a run."""

    run_id: str
    task_id: int = 0
    """0 for the answer."""
    output: str = ""


def artifact_uri(artifact: Artifact) -> str:
    return ARTIFACT.format(sha256=artifact.sha256)


def answer_uri(run_id: str) -> str:
    return ANSWER.format(run_id=run_id)


def output_uri(run_id: str, task_id: int, output: str) -> str:
    return OUTPUT.format(run_id=run_id, task_id=task_id, output=output)


def artifact_digest(text: str) -> str:
    """The digest of an artifact's URI, or the text itself if it is a digest; empty otherwise."""
    found = _ARTIFACT.fullmatch(text)
    return found[1] if found else ""


def parse_run_uri(uri: str) -> RunText | None:
    """Parses the URI of a run's answer or output; None for other URIs."""
    found = _RUN_TEXT.fullmatch(uri)
    return RunText(found[1], int(found[2] or 0), found[3] or "") if found else None


class Resources:
    """Lists and reads resources for the current caller."""

    def __init__(self, runs: RunOperations, store: ArtifactStore, files: FileService) -> None:
        self._runs = runs
        self._store = store
        self._files = files

    async def page(self, cursor: str) -> ListResourcesResult:
        """Lists stored files, newest first. Results of runs are linked from the tool results instead."""
        files, has_more = await self._files.page(FileQuery(PAGE_SIZE, cursor))
        return ListResourcesResult(
            resources=[_resource(file) for file in files], next_cursor=files[-1].id if has_more else None
        )

    def templates(self) -> ListResourceTemplatesResult:
        """URI templates of all resources."""
        templates = [
            ResourceTemplate(uri_template=template, name=name, description=description)
            for template, name, description in TEMPLATES
        ]
        return ListResourceTemplatesResult(resource_templates=templates)

    async def read(self, uri: str, site: str) -> ReadResourceResult:
        """Reads a resource.

        Raises:
            NotFound: RESOURCE; or the run or artifact does not exist for the caller.
        """
        if reference := parse_run_uri(uri):
            return _text(uri, "text/plain", await self._run_text(reference))
        if digest := artifact_digest(uri):
            return await self._artifact(uri, digest, site)
        raise NotFound(
            f"there is no resource {uri[:200]!r}", reason="RESOURCE", remedy="use a URI from the result of a tool"
        )

    async def _run_text(self, reference: RunText) -> str:
        run = await self._runs.get(reference.run_id)
        if not reference.task_id:
            return run.answer
        for status in run.tasks:
            if status.task.id == reference.task_id and reference.output in status.result.outputs:
                value = status.result.outputs[reference.output]
                return value.text if value.HasField("text") else value.json
        raise NotFound(
            f"task {reference.task_id} of {reference.run_id} has no output {reference.output}",
            reason="RESOURCE",
            remedy="call get_run to list the outputs",
        )

    async def _artifact(self, uri: str, digest: str, site: str) -> ReadResourceResult:
        tenant = call_context.current().tenant
        artifact = await self._store.head(tenant, digest)
        if artifact.size_bytes > READABLE_BYTES:
            return _text(uri, "text/uri-list", artifact_links.artifact_url(artifact, site))
        content = await self._store.get(tenant, digest)
        if is_text(artifact.media_type):
            return _text(uri, artifact.media_type, content.decode(errors="replace"))
        blob = base64.b64encode(content).decode()
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=artifact.media_type, blob=blob)])


def _text(uri: str, media_type: str, text: str) -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=media_type, text=text)])


def _resource(file: StoredFile) -> Resource:
    artifact = file.artifact
    return Resource(
        uri=artifact_uri(artifact),
        name=artifact.name or file.id,
        description=f"Uploaded as {file.id}",
        mime_type=artifact.media_type,
        size=artifact.size_bytes,
    )
