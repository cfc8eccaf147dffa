"""Files that are given as URLs: fetched, looked at and kept like those that are sent."""

from gateway.content_type_check import agree, usual
from gateway.limits.request_bytes import metered
from gateway.media_types import by_name, suffix
from gateway.uploads import Allowance, keep
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.artifacts.naming import clean_name
from services.common.errors import InvalidRequest, PermissionDenied
from services.common.http_fetch.fetch import FetchLimits, fetch
from services.common.http_fetch.ssrf_guard import SsrfGuard

ANY = FetchLimits.types


class Fetching:
    """Brings files in.

    Args:
        store: where they are kept.
        guard: decides who may be asked; None fetches nothing.
        files_bytes: most bytes of one file, and of all with one request.
    """

    def __init__(self, store: ArtifactStore, guard: SsrfGuard | None, files_bytes: int) -> None:
        self._store = store
        self._guard = guard
        self._files_bytes = files_bytes

    async def fetched(self, url: str, *, types: tuple[str, ...] = ANY, allowance: Allowance | None = None) -> Artifact:
        """What a URL gives, as an artifact of the current caller's tenant.

        Args:
            url: https or http.
            types: what its media type may begin with.
            allowance: bytes that may come with the request, if other files do.

        Raises:
            InvalidRequest: URL, FETCH_FAILED, TOO_LARGE, FILE_TYPE, EMPTY_FILE or NOT_UTF8.
            PermissionDenied: URL_ADDRESS, its host may not be reached; POLICY, it is outside the house and the caller's
                data policy is local; FETCHING_OFF.
            Overloaded: BYTES_QUOTA.
        """
        if self._guard is None:
            raise PermissionDenied(
                "URLs are not fetched here",
                reason="FETCHING_OFF",
                remedy="upload the file, or ask the operator to set GATEWAY_FETCH_URLS",
            )
        limits = FetchLimits(self._files_bytes, types=types)
        async with fetch(url, self._guard.for_current_caller(), limits) as found:
            name = _named(clean_name(found.name), found.media_type)
            artifact = await keep(
                self._store,
                call_context.current().tenant,
                name,
                metered(found.content),
                allowance or Allowance(self._files_bytes),
                claimed=found.media_type,
            )
        if not artifact.media_type.startswith(types):
            raise InvalidRequest(
                f"what the URL gives is {artifact.media_type}",
                reason="FILE_TYPE",
                remedy=f"give the URL of something whose type begins with {', '.join(types)}",
            )
        return artifact


def _named(name: str, claimed: str) -> str:
    """The name in a URL, ending as the stated type has it: names of pages and scripts often say nothing."""
    ending = suffix(usual(claimed))
    if not ending or (by_name(name) and agree(claimed, by_name(name))):
        return name
    return f"{name.rpartition('.')[0] if by_name(name) else name}.{ending}"
