"""Resolves the file references of MCP clients: URLs, file ids and resource URIs."""

import re
from collections.abc import Sequence

from gateway.core.file_references import UrlFetcher
from gateway.core.files import FileService
from gateway.core.uploads import Allowance
from gateway.mcp import resource_uris
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest, ServiceError

_URL = re.compile(r"https?://", re.IGNORECASE)


class References:
    """Resolves references to artifacts.

    Args:
        store: artifact store.
        files: stored files.
        fetching: downloads URLs.
        files_bytes: limit of the bytes that one call may reference.
    """

    def __init__(self, store: ArtifactStore, files: FileService, fetching: UrlFetcher, files_bytes: int) -> None:
        self._store = store
        self._files = files
        self._fetching = fetching
        self._files_bytes = files_bytes

    def allowance(self) -> Allowance:
        """A new allowance for the files of one call."""
        return Allowance(self._files_bytes)

    async def artifacts(self, given: Sequence[str], where: str, site: str) -> list[Artifact]:
        """Resolves references, in order.

        Args:
            given: the references.
            where: argument, for error messages.
            site: scheme and host of this gateway.

        Raises:
            ServiceError: a reference cannot be resolved; the message names it.
        """
        allowance = self.allowance()
        return [await self.artifact(text, f"{where}[{index}]", site, allowance) for index, text in enumerate(given)]

    async def artifact(self, given: str, where: str, site: str, allowance: Allowance) -> Artifact:
        """Resolves one reference and charges it to the allowance."""
        try:
            return await self._resolve(given.strip(), site, allowance)
        except ServiceError as error:
            error.message, error.port = f"{where}: {error.message}", where
            raise

    async def _resolve(self, text: str, site: str, allowance: Allowance) -> Artifact:
        if _URL.match(text) and not text.startswith(f"{site}/v1/artifacts/"):
            return await self._fetching.fetch(text, allowance=allowance)
        allowance.add_file()
        if text.startswith("file_"):
            return (await self._files.get(text)).artifact
        digest = resource_uris.digest(text.removeprefix(f"{site}/v1/artifacts/"))
        if digest:
            return await self._store.head(call_context.current().tenant, digest)
        raise InvalidRequest(
            f"{text[:100]!r} is not a file reference",
            reason="FILE_REFERENCE",
            remedy="use an https URL, the id of an uploaded file (file_…; see upload), or the URI of a result",
        )


def is_reference(text: str) -> bool:
    """Whether a text has the form of a file reference."""
    return bool(text.startswith("file_") or resource_uris.digest(text) or _URL.match(text))
