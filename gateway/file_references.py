"""Files named by an id or a URL where a value would stand: found, or fetched and kept like those that are sent."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.json_text import checked_text, refuse
from gateway.stored_files.files import Files
from gateway.uploads import MOST_FILES, Allowance, too_many_files
from gateway.url_inputs import Fetching
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.errors import ServiceError

AT_ONCE = 4
"""Files of one request that are fetched side by side."""

BATCH_TIMES = 100
"""As many times what may be fetched for one request may be for a batch."""

_KINDS = ("file_id", "url")


@dataclass(frozen=True)
class Mention:
    """A file in place of a value."""

    kind: str
    """file_id or url."""
    text: str
    where: str
    index: int
    """Among the named values where it stands."""
    turn: int | None = None
    """Of a run's history; None for an input."""

    def value(self, spec: RunSpec) -> Value:
        entries = spec.inputs if self.turn is None else spec.history[self.turn].attachments
        return entries[self.index].value


class Mentions:
    """Brings in what is mentioned.

    Args:
        files: those kept under ids.
        fetching: knows those elsewhere.
        files_bytes: most bytes that are fetched for one request.
    """

    def __init__(self, files: Files, fetching: Fetching, files_bytes: int) -> None:
        self._files = files
        self._fetching = fetching
        self._files_bytes = files_bytes

    def allowance(self, within: Allowance | None = None) -> Allowance:
        """For what one request, or one item of it, mentions."""
        return Allowance(self._files_bytes, within)

    def of_batch(self) -> Allowance:
        """For what all items of a batch mention."""
        return Allowance(BATCH_TIMES * self._files_bytes)

    async def artifact(self, mention: Mention, allowance: Allowance) -> Artifact:
        """The file, of all that an allowance is for.

        Raises:
            NotFound: FILE, the caller has none of that id.
            ServiceError: as Fetching says.
        """
        try:
            if mention.kind == "url":
                return await self._fetching.fetched(mention.text, allowance=allowance)
            allowance.begin()
            return (await self._files.get(mention.text)).artifact
        except ServiceError as error:
            error.port = mention.where
            raise

    async def bring_in(self, mentions: Sequence[Mention], spec: RunSpec) -> None:
        """Puts artifacts where files were mentioned; all count together against the limit."""
        if len(mentions) > MOST_FILES:
            raise too_many_files()
        turn, allowance = asyncio.Semaphore(AT_ONCE), self.allowance()

        async def bring(mention: Mention) -> None:
            async with turn:
                mention.value(spec).artifact.CopyFrom(await self.artifact(mention, allowance))

        try:
            async with asyncio.TaskGroup() as group:
                for mention in mentions:
                    group.create_task(bring(mention))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None


def of_run(document: dict[str, Any]) -> list[Mention]:
    """Takes mentions out of a run's inputs and attachments, as JSON has them.

    Raises:
        InvalidRequest: one is no text, or stands beside another value.
    """
    found = list(taken_out(document.get("inputs"), "inputs"))
    for turn, said in _objects(document.get("history")):
        found += taken_out(said.get("attachments"), f"history[{turn}].attachments", turn)
    return found


def taken_out(given: Any, where: str, turn: int | None = None) -> Iterator[Mention]:
    """Takes {"url": …} and {"file_id": …} out of named values, and leaves an empty artifact there.

    Raises:
        InvalidRequest: one is no text, or stands beside another value.
    """
    for index, entry in _objects(given):
        for kind in _KINDS:
            if kind in entry:
                place = f"{where}[{index}]"
                yield Mention(kind, _taken(entry, kind, place), place, index, turn)


def _taken(entry: dict[str, Any], kind: str, place: str) -> str:
    text = checked_text(entry.pop(kind), place)
    if unknown := entry.keys() - {"name"}:
        remedy = f'send for instance {{"name": "a", "{kind}": "…"}}'
        refuse(place, f"has {min(unknown)[:100]!r} beside {kind}", remedy=remedy)
    entry["artifact"] = {}
    return text


def _objects(given: Any) -> list[tuple[int, dict[str, Any]]]:
    entries = enumerate(given if isinstance(given, list) else [])
    return [(index, entry) for index, entry in entries if isinstance(entry, dict)]
