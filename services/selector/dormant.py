"""Experts that may sleep, as the operator has described them before they were met: a folder of *.json."""

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
from services.selector.catalog import Catalog, check_name

log = structlog.get_logger(__name__)

SUFFIX = ".json"
"""Of the files that count in the folder."""

LOOK_SECONDS = 1.0

_REMEDY = "write it with EXPERT_MAY_SLEEP=true python -m experts.NAME --describe"


@dataclass(frozen=True)
class Found:
    """What a look has found."""

    replies: tuple[DescribeResponse, ...] = ()
    trouble: str = ""


class Sleepers:
    """Tells the catalogue of the experts in a folder, now and whenever its files change.

    Args:
        folder: of files as `--describe` writes them; one that is not there describes nobody.
        catalog: told of them.
        seconds: from one look to the next.
    """

    def __init__(self, folder: Path, catalog: Catalog, *, seconds: float = LOOK_SECONDS) -> None:
        self._folder = folder
        self._catalog = catalog
        self._seconds = seconds
        self._contents: dict[str, bytes] = {}
        self._found = Found()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks until the block exits, once before it is entered."""
        await self._look()
        task = asyncio.create_task(supervise(self._run, name="dormant experts folder"), name="sleepers")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self._look()

    async def _look(self) -> None:
        found = await asyncio.to_thread(self._read)
        if found.trouble and found.trouble != self._found.trouble:
            log.warning("sleeping experts", folder=str(self._folder), trouble=found.trouble, remedy=_REMEDY)
        self._found = found
        self._catalog.troubles[str(self._folder)] = found.trouble
        self._catalog.foretold(found.replies)

    def _read(self) -> Found:
        try:
            files = sorted(file for file in self._folder.iterdir() if file.suffix == SUFFIX)
            contents = {file.name: file.read_bytes() for file in files}
        except FileNotFoundError:
            return Found()
        except OSError as error:
            return Found(self._found.replies, f"cannot be read: {error.strerror}")
        if contents == self._contents:
            return self._found
        self._contents = contents
        return _parsed(contents)


def _parsed(contents: dict[str, bytes]) -> Found:
    replies, wrong = [], []
    for name, content in contents.items():
        try:
            replies.append(_sleeper(content))
        except (CorruptData, json_format.ParseError, UnicodeDecodeError) as error:
            wrong.append(f"{name} ({error})")
    return Found(tuple(replies), f"holds what describes no expert that may sleep: {'; '.join(wrong)}" if wrong else "")


def _sleeper(content: bytes) -> DescribeResponse:
    reply = json_format.Parse(content, DescribeResponse(), ignore_unknown_fields=True)
    check_name(reply.expert)
    if not reply.may_sleep:
        raise CorruptData(f"{reply.expert} does not say may_sleep")
    return reply
