"""Files that are given as URLs: fetched, looked at and kept like those that are sent."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.claims import agree, usual
from gateway.files import MOST_FILES, Allowance, keep, too_many_files
from gateway.json_text import checked_text, refuse
from gateway.media_types import by_name, suffix
from protos.hugginggpt.v1.types_pb2 import Artifact, RunSpec, Value
from services.runtime import caller
from services.runtime.artifacts import ArtifactStore
from services.runtime.artifacts.giving import clean_name
from services.runtime.errors import InvalidRequest, PermissionDenied, ServiceError
from services.runtime.outbound.guard import Guard
from services.runtime.outbound.reading import Limits, answer

AT_ONCE = 4
"""URLs of one request that are fetched side by side."""

ANY = Limits.types


class Fetching:
    """Brings files in.

    Args:
        store: where they are kept.
        guard: decides who may be asked; None fetches nothing.
        files_bytes: most bytes of one file, and of all with one request.
    """

    def __init__(self, store: ArtifactStore, guard: Guard | None, files_bytes: int) -> None:
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
            PermissionDenied: URL_ADDRESS, its host may not be reached; FETCHING_OFF.
        """
        if self._guard is None:
            raise PermissionDenied(
                "URLs are not fetched here",
                reason="FETCHING_OFF",
                remedy="upload the file, or ask the operator to set GATEWAY_FETCH_URLS",
            )
        limits = Limits(self._files_bytes, types=types)
        async with answer(url, self._guard, limits) as found:
            name = _named(clean_name(found.name), found.media_type)
            artifact = await keep(
                self._store,
                caller.current().tenant,
                name,
                found.content,
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

    async def bring_in(self, urls: Sequence["Wanted"], spec: RunSpec) -> None:
        """Makes artifacts of the values that were given as URLs; all count together against the limit."""
        if len(urls) > MOST_FILES:
            raise too_many_files()
        turn, allowance = asyncio.Semaphore(AT_ONCE), Allowance(self._files_bytes)

        async def bring(wanted: Wanted) -> None:
            async with turn:
                try:
                    artifact = await self.fetched(wanted.url, allowance=allowance)
                except ServiceError as error:
                    error.port = wanted.where
                    raise
            wanted.value(spec).artifact.CopyFrom(artifact)

        try:
            async with asyncio.TaskGroup() as group:
                for wanted in urls:
                    group.create_task(bring(wanted))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None


@dataclass(frozen=True)
class Wanted:
    """A URL in place of a value."""

    url: str
    index: int
    turn: int | None = None
    """Of the history; None for an input."""

    @property
    def where(self) -> str:
        return f"inputs[{self.index}]" if self.turn is None else f"history[{self.turn}].attachments[{self.index}]"

    def value(self, spec: RunSpec) -> Value:
        entries = spec.inputs if self.turn is None else spec.history[self.turn].attachments
        return entries[self.index].value


def taken_out(document: dict[str, Any]) -> list[Wanted]:
    """Takes {"url": …} out of a run's inputs and attachments, as JSON has them, and leaves an empty artifact there.

    Raises:
        InvalidRequest: a URL is no text, or stands beside another value.
    """
    lists: list[tuple[int | None, Any]] = [(None, document.get("inputs"))]
    lists += [(turn, said.get("attachments")) for turn, said in _objects(document.get("history"))]
    return [_taken(entry, index, turn) for turn, given in lists for index, entry in _objects(given) if "url" in entry]


def _objects(given: Any) -> list[tuple[int, dict[str, Any]]]:
    entries = enumerate(given if isinstance(given, list) else [])
    return [(index, entry) for index, entry in entries if isinstance(entry, dict)]


def _taken(entry: dict[str, Any], index: int, turn: int | None) -> Wanted:
    wanted = Wanted(str(entry["url"]), index, turn)
    checked_text(entry.pop("url"), wanted.where)
    if unknown := entry.keys() - {"name"}:
        remedy = 'send for instance {"name": "a", "url": "https://…"}'
        refuse(wanted.where, f"has {min(unknown)[:100]!r} beside url", remedy=remedy)
    entry["artifact"] = {}
    return wanted


def _named(name: str, claimed: str) -> str:
    """The name in a URL, ending as the stated type has it: names of pages and scripts often say nothing."""
    ending = suffix(usual(claimed))
    if not ending or (by_name(name) and agree(claimed, by_name(name))):
        return name
    return f"{name.rpartition('.')[0] if by_name(name) else name}.{ending}"
