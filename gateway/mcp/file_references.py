"""File references in the arguments of tools: URLs, file ids and resource URIs."""

import re
from collections.abc import Sequence

from gateway.core.file_references import FileReference, FileResolver
from gateway.core.uploads import Allowance
from gateway.mcp import resources
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.errors import InvalidRequest, ServiceError

_URL = re.compile(r"https?://", re.IGNORECASE)


async def resolve_files(resolver: FileResolver, given: Sequence[str], path: str, site: str) -> list[Artifact]:
    """Resolves the references of one argument to artifacts, in order; they count against one allowance.

    Raises:
        ServiceError: a reference cannot be resolved; the message names it.
    """
    allowance = resolver.allowance()
    return [await resolve_file(resolver, text, f"{path}[{index}]", site, allowance) for index, text in enumerate(given)]


async def resolve_file(resolver: FileResolver, text: str, path: str, site: str, allowance: Allowance) -> Artifact:
    """Resolves a reference to an artifact.

    Args:
        resolver: resolves references of all protocols.
        text: the reference.
        path: argument, for error messages.
        site: scheme and host of this gateway.
        allowance: allowance of the call.

    Raises:
        ServiceError: the reference cannot be resolved; the message names it.
    """
    try:
        return await resolver.fetch(_parse(text.strip(), path, site), allowance)
    except ServiceError as error:
        error.message = f"{path}: {error.message}"
        raise


def _parse(text: str, path: str, site: str) -> FileReference:
    own = f"{site}/v1/artifacts/"
    if _URL.match(text) and not text.startswith(own):
        return FileReference("url", text, path)
    if text.startswith("file_"):
        return FileReference("file_id", text, path)
    if digest := resources.artifact_digest(text.removeprefix(own)):
        return FileReference("sha256", digest, path)
    raise InvalidRequest(
        f"{text[:100]!r} is not a file reference",
        reason="FILE_REFERENCE",
        remedy="use an https URL, the id of an uploaded file (file_…; see upload), or the URI of a result",
        port=path,
    )


def is_reference(text: str) -> bool:
    """Whether a text has the form of a file reference."""
    return bool(text.startswith("file_") or resources.artifact_digest(text) or _URL.match(text))
