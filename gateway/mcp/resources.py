"""What an agent may read: texts that were too long to tell, and files that are small enough."""

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

from gateway.mcp import resource_uris
from gateway.media_types import is_text
from gateway.openai import links
from gateway.runs import Runs
from gateway.stored_files.files import FileQuery, Files, StoredFile
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import NotFound

READABLE_BYTES = 1_000_000
"""Of a larger file the URL is read, not the bytes."""

PAGE = 50

TEMPLATES = (
    (resource_uris.ARTIFACT, "artifact", "A file that a run was given or has made."),
    (resource_uris.ANSWER, "answer", "A run's whole answer."),
    (resource_uris.OUTPUT, "output", "What a task of a run has put out on one port, whole."),
)


class Resources:
    """Reads them for the current caller."""

    def __init__(self, runs: Runs, store: ArtifactStore, files: Files) -> None:
        self._runs = runs
        self._store = store
        self._files = files

    async def page(self, cursor: str) -> ListResourcesResult:
        """Files kept, newest first; what a run has made is linked where it is told."""
        kept, more = await self._files.page(FileQuery(PAGE, cursor))
        return ListResourcesResult(
            resources=[_listed(file) for file in kept], next_cursor=kept[-1].id if more else None
        )

    def templates(self) -> ListResourceTemplatesResult:
        """The forms of all URIs."""
        forms = [
            ResourceTemplate(uri_template=form, name=name, description=description)
            for form, name, description in TEMPLATES
        ]
        return ListResourceTemplatesResult(resource_templates=forms)

    async def read(self, uri: str, site: str) -> ReadResourceResult:
        """What is at a URI.

        Raises:
            NotFound: RESOURCE, or what the caller has none of.
        """
        if wanted := resource_uris.of_run(uri):
            return _text(uri, "text/plain", await self._of_run(wanted))
        if digest := resource_uris.digest(uri):
            return await self._of_artifact(uri, digest, site)
        raise NotFound(f"there is no resource {uri[:200]!r}", reason="RESOURCE", remedy="use a URI as a tool gave it")

    async def _of_run(self, wanted: resource_uris.OfRun) -> str:
        run = await self._runs.get(wanted.run_id)
        if not wanted.task_id:
            return run.answer
        for status in run.tasks:
            if status.task.id == wanted.task_id and wanted.output in status.result.outputs:
                value = status.result.outputs[wanted.output]
                return value.text if value.HasField("text") else value.json
        raise NotFound(
            f"task {wanted.task_id} of {wanted.run_id} has no output {wanted.output}",
            reason="RESOURCE",
            remedy="see with get_run what there is",
        )

    async def _of_artifact(self, uri: str, digest: str, site: str) -> ReadResourceResult:
        tenant = call_context.current().tenant
        known = await self._store.head(tenant, digest)
        if known.size_bytes > READABLE_BYTES:
            return _text(uri, "text/uri-list", links.address(known, site))
        content = await self._store.get(tenant, digest)
        if is_text(known.media_type):
            return _text(uri, known.media_type, content.decode(errors="replace"))
        blob = base64.b64encode(content).decode()
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=known.media_type, blob=blob)])


def _text(uri: str, media_type: str, text: str) -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=media_type, text=text)])


def _listed(file: StoredFile) -> Resource:
    artifact = file.artifact
    return Resource(
        uri=resource_uris.of_artifact(artifact),
        name=artifact.name or file.id,
        description=f"Uploaded as {file.id}",
        mime_type=artifact.media_type,
        size=artifact.size_bytes,
    )
