"""Resolves references to files, in requests of all protocols: URLs, ids of stored files, and digests of artifacts.

Files at URLs are fetched through the SSRF guard and stored like uploaded files.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.core.files import FileService
from gateway.core.uploads import MAX_FILES, Allowance, is_compatible, normalized_type, store_file, too_many_files_error
from gateway.json_text import checked_text, refuse
from gateway.limits.quotas import count_bytes
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.artifacts.downloads import clean_name
from services.common.errors import InvalidRequest, PermissionDenied, ServiceError
from services.common.http_fetch.fetch import FetchLimits, fetch
from services.common.http_fetch.ssrf_guard import SsrfGuard
from services.common.media_types import by_name, suffix

ANY = FetchLimits.types

MAX_CONCURRENT = 4
"""Concurrent fetches of one request."""

BATCH_FACTOR = 100
"""Factor of the file limit of a batch relative to one request."""

_REFERENCE_KEYS: tuple[Literal["file_id", "url"], ...] = ("file_id", "url")


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


@dataclass(frozen=True)
class FileReference:
    """A reference to a file."""

    kind: Literal["url", "file_id", "sha256"]
    text: str
    path: str
    """Position in the request, for error messages."""


@dataclass(frozen=True)
class RunFileReference(FileReference):
    """A reference in place of a value of a run."""

    index: int
    """Index among the named values."""
    history_turn: int | None = None
    """Index in the run's history; None for an input."""

    def value(self, spec: RunSpec) -> Value:
        entries = spec.inputs if self.history_turn is None else spec.history[self.history_turn].attachments
        return entries[self.index].value


class FileResolver:
    """Resolves file references to artifacts.

    Args:
        store: artifact store.
        files: stored files by id.
        url_fetcher: fetches URLs.
        files_bytes: maximum total bytes fetched for one request.
    """

    def __init__(self, store: ArtifactStore, files: FileService, url_fetcher: UrlFetcher, files_bytes: int) -> None:
        self._store = store
        self._files = files
        self._url_fetcher = url_fetcher
        self._files_bytes = files_bytes

    def allowance(self, parent: Allowance | None = None) -> Allowance:
        """Allowance of one request, or of one item of a batch."""
        return Allowance(self._files_bytes, parent)

    def batch_allowance(self) -> Allowance:
        """Allowance of all items of a batch."""
        return Allowance(BATCH_FACTOR * self._files_bytes)

    async def fetch(self, reference: FileReference, allowance: Allowance) -> Artifact:
        """Returns the artifact of a reference and counts it against the allowance.

        Raises:
            NotFound: FILE or ARTIFACT, the caller has no file with that id or digest.
            ServiceError: as UrlFetcher.fetch raises.
        """
        try:
            if reference.kind == "url":
                return await self._url_fetcher.fetch(reference.text, allowance=allowance)
            allowance.add_file()
            if reference.kind == "sha256":
                return await self._store.head(call_context.current().tenant, reference.text)
            return (await self._files.get(reference.text)).artifact
        except ServiceError as error:
            error.port = reference.path
            raise

    async def resolve(self, references: Sequence[RunFileReference], spec: RunSpec) -> None:
        """Replaces references by artifacts in the spec; together they count against one allowance."""
        if len(references) > MAX_FILES:
            raise too_many_files_error()
        permits, allowance = asyncio.Semaphore(MAX_CONCURRENT), self.allowance()

        async def resolve_one(reference: RunFileReference) -> None:
            async with permits:
                reference.value(spec).artifact.CopyFrom(await self.fetch(reference, allowance))

        try:
            async with asyncio.TaskGroup() as group:
                for reference in references:
                    group.create_task(resolve_one(reference))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None


def run_references(document: dict[str, Any]) -> list[RunFileReference]:
    """Extracts the references from the inputs and attachments of a run's JSON.

    Raises:
        InvalidRequest: a reference is not a string, or is combined with another value.
    """
    found = list(extract_references(document.get("inputs"), "inputs"))
    for index, turn in _objects(document.get("history")):
        found += extract_references(turn.get("attachments"), f"history[{index}].attachments", index)
    return found


def extract_references(given: Any, path: str, history_turn: int | None = None) -> Iterator[RunFileReference]:
    """Extracts {"url": …} and {"file_id": …} from named values, leaving empty artifacts in their place.

    Raises:
        InvalidRequest: a reference is not a string, or is combined with another value.
    """
    for index, entry in _objects(given):
        for kind in _REFERENCE_KEYS:
            if kind in entry:
                item_path = f"{path}[{index}]"
                yield RunFileReference(kind, _extract_one(entry, kind, item_path), item_path, index, history_turn)


def _extract_one(entry: dict[str, Any], kind: str, path: str) -> str:
    text = checked_text(entry.pop(kind), path)
    if unknown := entry.keys() - {"name"}:
        remedy = f'send an object such as {{"name": "a", "{kind}": "…"}}'
        refuse(path, f"has {min(unknown)[:100]!r} in addition to {kind}", remedy=remedy)
    entry["artifact"] = {}
    return text


def _objects(given: Any) -> list[tuple[int, dict[str, Any]]]:
    entries = enumerate(given if isinstance(given, list) else [])
    return [(index, entry) for index, entry in entries if isinstance(entry, dict)]
