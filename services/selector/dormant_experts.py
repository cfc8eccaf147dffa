"""Dormant experts: descriptions stored while they ran, and those that the operator preconfigured in *.json files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_LOADABLE, MODEL_STATE_READY
from services.common.errors import CorruptData, FailedPrecondition, NotFound, ServiceError
from services.common.object_store import KeyValueStore
from services.common.supervision import supervise
from services.selector.catalog import ExpertCatalog, check_name

log = structlog.get_logger(__name__)

STORE_KIND = "experts"
"""Collection of the descriptions in the store."""

FIRST_READ_SECONDS = 2.0
"""Longest wait for the stored descriptions at the start; a slower store is read later."""

LAST_WRITE_SECONDS = 2.0
"""Longest wait for pending writes at the stop."""

STORE_POLL_SECONDS = 5.0

_DESCRIPTION_SUFFIX = ".json"
FOLDER_POLL_SECONDS = 1.0

_REMEDY = "write it with EXPERT_SCALES_TO_ZERO=true python -m experts.NAME --describe"


class DescriptionStore:
    """Restores dormant experts at the start of the selector, and stores descriptions when they change.

    Args:
        store: of the descriptions.
        catalog: with the experts to store.
        write_pause: seconds between two writes.
        poll_seconds: interval of checks for descriptions that other replicas have deleted.
    """

    def __init__(
        self,
        store: KeyValueStore,
        catalog: ExpertCatalog,
        *,
        write_pause: float = 1.0,
        poll_seconds: float = STORE_POLL_SECONDS,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._write_pause = write_pause
        self._poll_seconds = poll_seconds
        self._written: dict[str, bytes] = {}
        self._forgetting: set[str] = set()
        """Names of experts that this process is removing."""
        self._read_attempted = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Restores descriptions, then writes changes until the block exits; an unavailable store only disables this."""
        loops = {"stored expert descriptions": self._run, "forgotten experts": self._watch_deletions}
        tasks = [asyncio.create_task(supervise(loop, name=name), name=name) for name, loop in loops.items()]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_READ_SECONDS):
                    await self._read_attempted.wait()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WRITE_SECONDS):
                    await self._write()

    @asynccontextmanager
    async def forgetting(self, name: str) -> AsyncIterator[None]:
        """Deletes an expert's stored description for all replicas of the selector, and writes none within the block.

        The block must remove it from the catalogue.

        Raises:
            Unavailable: the store is unavailable.
        """
        self._forgetting.add(name)
        try:
            await self._store.delete(name)
            self._written.pop(name, None)
            yield
        finally:
            self._forgetting.discard(name)

    async def _run(self) -> None:
        while not await self._restore_all():  # noqa: ASYNC110  # the store has no event to wait for
            await asyncio.sleep(self._write_pause)
        revision = ""
        while changed := await self._catalog.wait_for_revision(revision):
            revision = changed if await self._write() else ""  # empty: the write is repeated
            await asyncio.sleep(self._write_pause)

    async def _watch_deletions(self) -> None:
        """Removes experts whose stored descriptions another replica of the selector has deleted."""
        while True:
            await asyncio.sleep(self._poll_seconds)
            written = set(self._written)
            try:
                deleted = written - await self._store.keys()
            except ServiceError as error:
                log.debug("deleted descriptions unknown: store unavailable", error=error.message)
                continue
            for name in (deleted & self._written.keys()) - self._forgetting:
                self._written.pop(name, None)
                with suppress(NotFound, FailedPrecondition):  # already removed, or running: then it is stored again
                    self._catalog.forget(name)
                    log.info("expert removed", expert=name)

    async def _restore_all(self) -> bool:
        try:
            stored = await self._store.all()
        except ServiceError as error:
            log.warning("dormant experts not restored: store unavailable", error=error.message, remedy=error.remedy)
            return False
        finally:
            self._read_attempted.set()
        for name, content in stored.items():
            self._written[name] = content
            self._restore(name, content)
        return True

    def _restore(self, name: str, content: bytes) -> None:
        try:
            reply = DescribeResponse.FromString(content)
        except DecodeError:
            log.warning("stored expert description invalid", expert=name)
            return
        if reply.scales_to_zero and reply.expert == name:
            self._catalog.restore(reply)

    async def _write(self) -> bool:
        latest = {
            replica_offer.expert: replica_offer.description.reply for replica_offer in self._catalog.view.replica_offers
        }
        try:
            for name, reply in latest.items():
                content = _stable_content(reply)
                if name not in self._forgetting and self._written.get(name) != content:
                    await self._store.put(name, content)
                    self._written[name] = content
        except ServiceError as error:
            log.warning("expert descriptions not stored", error=error.message, remedy=error.remedy)
            return False
        return True


def _stable_content(reply: DescribeResponse) -> bytes:
    """The description without load, revision and loaded state, which change often."""
    stable = DescribeResponse()
    stable.CopyFrom(reply)
    stable.ClearField("load")
    stable.ClearField("revision")
    for card in stable.models:
        if card.state == MODEL_STATE_READY:
            card.state = MODEL_STATE_LOADABLE
    return stable.SerializeToString(deterministic=True)


# ---------------------------------------------------------------- preconfigured experts


@dataclass(frozen=True)
class _FolderContents:
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

    def __init__(self, folder: Path, catalog: ExpertCatalog, *, seconds: float = FOLDER_POLL_SECONDS) -> None:
        self._folder = folder
        self._catalog = catalog
        self._seconds = seconds
        self._contents: dict[str, bytes] = {}
        self._last = _FolderContents()

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

    def _read(self) -> _FolderContents:
        try:
            files = sorted(file for file in self._folder.iterdir() if file.suffix == _DESCRIPTION_SUFFIX)
            contents = {file.name: file.read_bytes() for file in files}
        except FileNotFoundError:
            return _FolderContents()
        except OSError as error:
            return _FolderContents(self._last.replies, f"cannot be read: {error.strerror}")
        if contents == self._contents:
            return self._last
        self._contents = contents
        return _parse_files(contents)


def _parse_files(contents: dict[str, bytes]) -> _FolderContents:
    replies, invalid = [], []
    for name, content in contents.items():
        try:
            replies.append(_parse_file(content))
        except (CorruptData, json_format.ParseError, UnicodeDecodeError) as error:
            invalid.append(f"{name} ({error})")
    return _FolderContents(
        tuple(replies), f"has files that describe no dormant expert: {'; '.join(invalid)}" if invalid else ""
    )


def _parse_file(content: bytes) -> DescribeResponse:
    reply = json_format.Parse(content, DescribeResponse(), ignore_unknown_fields=True)
    check_name(reply.expert)
    if not reply.scales_to_zero:
        raise CorruptData(f"{reply.expert} does not set scales_to_zero")
    return reply
