"""The MCP resources: long texts of runs, and files."""

import base64

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
from gateway.core.media_types import is_text
from gateway.core.runs import RunService
from gateway.mcp import resource_uris
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import NotFound

READABLE_BYTES = 1_000_000
"""Size limit of a file that is returned as content; a larger one is returned as a URL."""

PAGE_SIZE = 50

TEMPLATES = (
    (resource_uris.ARTIFACT, "artifact", "An input or output file of a run."),
    (resource_uris.ANSWER, "answer", "The full answer of a run."),
    (resource_uris.OUTPUT, "output", "The full content of a task's output."),
)


class Resources:
    """Lists and reads resources for the current caller."""

    def __init__(self, runs: RunService, store: ArtifactStore, files: FileService) -> None:
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
        if reference := resource_uris.parse_run_uri(uri):
            return _text(uri, "text/plain", await self._run_text(reference))
        if digest := resource_uris.digest(uri):
            return await self._artifact(uri, digest, site)
        raise NotFound(
            f"there is no resource {uri[:200]!r}", reason="RESOURCE", remedy="use a URI from the result of a tool"
        )

    async def _run_text(self, reference: resource_uris.RunText) -> str:
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
        uri=resource_uris.artifact_uri(artifact),
        name=artifact.name or file.id,
        description=f"Uploaded as {file.id}",
        mime_type=artifact.media_type,
        size=artifact.size_bytes,
    )
