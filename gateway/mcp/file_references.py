"""Files as an agent names them: by what a tool has told, or by URL."""

import re
from collections.abc import Sequence

from gateway.mcp import resource_uris
from gateway.stored_files.files import Files
from gateway.uploads import Allowance
from gateway.url_inputs import UrlFetcher
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest, ServiceError

_URL = re.compile(r"https?://", re.IGNORECASE)


class References:
    """Finds what they stand for.

    Args:
        store: where artifacts are.
        files: those kept under ids.
        fetching: brings in what is elsewhere.
        files_bytes: most bytes fetched for one call.
    """

    def __init__(self, store: ArtifactStore, files: Files, fetching: UrlFetcher, files_bytes: int) -> None:
        self._store = store
        self._files = files
        self._fetching = fetching
        self._files_bytes = files_bytes

    def allowance(self) -> Allowance:
        """For the files of one call."""
        return Allowance(self._files_bytes)

    async def artifacts(self, given: Sequence[str], where: str, site: str) -> list[Artifact]:
        """The artifacts that are meant, in their order.

        Args:
            given: as the agent wrote them.
            where: named where one is wrong.
            site: scheme and host under which this gateway is known.

        Raises:
            ServiceError: naming the one that cannot be had.
        """
        allowance = self.allowance()
        return [await self.artifact(text, f"{where}[{index}]", site, allowance) for index, text in enumerate(given)]

    async def artifact(self, given: str, where: str, site: str, allowance: Allowance) -> Artifact:
        """One, of all that an allowance is for."""
        try:
            return await self._found(given.strip(), site, allowance)
        except ServiceError as error:
            error.message, error.port = f"{where}: {error.message}", where
            raise

    async def _found(self, text: str, site: str, allowance: Allowance) -> Artifact:
        if _URL.match(text) and not text.startswith(f"{site}/v1/artifacts/"):
            return await self._fetching.fetch(text, allowance=allowance)
        allowance.add_file()
        if text.startswith("file_"):
            return (await self._files.get(text)).artifact
        digest = resource_uris.digest(text.removeprefix(f"{site}/v1/artifacts/"))
        if digest:
            return await self._store.head(call_context.current().tenant, digest)
        raise InvalidRequest(
            f"{text[:100]!r} names no file",
            reason="FILE_REFERENCE",
            remedy="give an https URL, the id of an uploaded file (file_…; see upload), or the URI of a result",
        )


def is_reference(text: str) -> bool:
    """Whether the text has the form of one."""
    return bool(text.startswith("file_") or resource_uris.digest(text) or _URL.match(text))
