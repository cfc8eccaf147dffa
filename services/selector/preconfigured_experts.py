"""Preconfigured dormant experts: descriptions in a folder of *.json files, written by the operator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from google.protobuf import json_format

from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from services.common.errors import CorruptData
from services.common.supervision import supervise
from services.selector.catalog import ExpertCatalog, check_name

log = structlog.get_logger(__name__)

SUFFIX = ".json"
"""Suffix of description files."""

POLL_SECONDS = 1.0

_REMEDY = "write it with EXPERT_SCALES_TO_ZERO=true python -m experts.NAME --describe"


@dataclass(frozen=True)
class FolderContents:
    """Contents of the folder."""

    replies: tuple[DescribeResponse, ...] = ()
    error: str = ""


class PreconfiguredExperts:
    """Reads the folder's descriptions into the catalogue, now and whenever a file changes.

    Args:
        folder: of files as `--describe` writes them; it need not exist.
        catalog: receives the descriptions.
        seconds: interval between reads.
    """

    def __init__(self, folder: Path, catalog: ExpertCatalog, *, seconds: float = POLL_SECONDS) -> None:
        self._folder = folder
        self._catalog = catalog
        self._seconds = seconds
        self._contents: dict[str, bytes] = {}
        self._last = FolderContents()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Reads the folder until the block exits, once before it is entered."""
        await self._poll()
        task = asyncio.create_task(supervise(self._run, name="dormant experts folder"), name="dormant experts folder")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self._poll()

    async def _poll(self) -> None:
        result = await asyncio.to_thread(self._read)
        if result.error and result.error != self._last.error:
            log.warning(
                "invalid descriptions of dormant experts", folder=str(self._folder), error=result.error, remedy=_REMEDY
            )
        self._last = result
        self._catalog.source_errors[str(self._folder)] = result.error
        self._catalog.set_preconfigured(result.replies)

    def _read(self) -> FolderContents:
        try:
            files = sorted(file for file in self._folder.iterdir() if file.suffix == SUFFIX)
            contents = {file.name: file.read_bytes() for file in files}
        except FileNotFoundError:
            return FolderContents()
        except OSError as error:
            return FolderContents(self._last.replies, f"cannot be read: {error.strerror}")
        if contents == self._contents:
            return self._last
        self._contents = contents
        return _parsed(contents)


def _parsed(contents: dict[str, bytes]) -> FolderContents:
    replies, invalid = [], []
    for name, content in contents.items():
        try:
            replies.append(_dormant_expert(content))
        except (CorruptData, json_format.ParseError, UnicodeDecodeError) as error:
            invalid.append(f"{name} ({error})")
    return FolderContents(
        tuple(replies), f"has files that describe no dormant expert: {'; '.join(invalid)}" if invalid else ""
    )


def _dormant_expert(content: bytes) -> DescribeResponse:
    reply = json_format.Parse(content, DescribeResponse(), ignore_unknown_fields=True)
    check_name(reply.expert)
    if not reply.scales_to_zero:
        raise CorruptData(f"{reply.expert} does not set scales_to_zero")
    return reply
