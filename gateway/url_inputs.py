"""Inputs given as URLs: fetched through the SSRF guard and stored like uploaded files."""

from gateway.content_type_check import is_compatible, normalized_type
from gateway.limits.request_bytes import count_bytes
from gateway.media_types import by_name, suffix
from gateway.uploads import Allowance, store_file
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.artifacts.downloads import clean_name
from services.common.errors import InvalidRequest, PermissionDenied
from services.common.http_fetch.fetch import FetchLimits, fetch
from services.common.http_fetch.ssrf_guard import SsrfGuard

ANY = FetchLimits.types


class UrlFetcher:
    """Fetches files from URLs.

    Args:
        store: artifact store.
        guard: decides which addresses may be contacted; None: fetching is disabled.
        files_bytes: maximum bytes of one file, and of all files of a request.
    """

    def __init__(self, store: ArtifactStore, guard: SsrfGuard | None, files_bytes: int) -> None:
        self._store = store
        self._guard = guard
        self._files_bytes = files_bytes

    async def fetch(self, url: str, *, types: tuple[str, ...] = ANY, allowance: Allowance | None = None) -> Artifact:
        """Fetches a URL and stores its content as an artifact of the current caller's tenant.

        Args:
            url: an http or https URL.
            types: accepted prefixes of the content's media type.
            allowance: allowance of the request, if it has other files.

        Raises:
            InvalidRequest: URL, FETCH_FAILED, TOO_LARGE, FILE_TYPE, EMPTY_FILE or NOT_UTF8.
            PermissionDenied: URL_ADDRESS, the host may not be contacted; POLICY, the host is outside the deployment and
                the caller's data policy is local; FETCHING_OFF, fetching is disabled.
            Overloaded: BYTES_QUOTA.
        """
        if self._guard is None:
            raise PermissionDenied(
                "fetching URLs is disabled",
                reason="FETCHING_OFF",
                remedy="upload the file, or ask the operator to enable GATEWAY_FETCH_URLS",
            )
        limits = FetchLimits(self._files_bytes, types=types)
        async with fetch(url, self._guard.for_current_caller(), limits) as found:
            name = _named(clean_name(found.name), found.media_type)
            artifact = await store_file(
                self._store,
                call_context.current().tenant,
                name,
                count_bytes(found.content),
                allowance or Allowance(self._files_bytes),
                stated_type=found.media_type,
            )
        if not artifact.media_type.startswith(types):
            raise InvalidRequest(
                f"the content of the URL has the media type {artifact.media_type}",
                reason="FILE_TYPE",
                remedy=f"use a URL whose content type starts with {', '.join(types)}",
            )
        return artifact


def _named(name: str, stated_type: str) -> str:
    """File name from the URL with the extension of the stated type, because URLs of pages often have another one."""
    ending = suffix(normalized_type(stated_type))
    if not ending or (by_name(name) and is_compatible(stated_type, by_name(name))):
        return name
    return f"{name.rpartition('.')[0] if by_name(name) else name}.{ending}"
