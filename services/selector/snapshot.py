"""Stores the last description of each expert in the object store, for the next start of the selector."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog
from google.protobuf.message import DecodeError

from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_LOADABLE, MODEL_STATE_READY
from services.common.errors import FailedPrecondition, NotFound, ServiceError
from services.common.kv_store import KeyValueStore
from services.common.supervision import supervise
from services.selector.catalog import Catalog

log = structlog.get_logger(__name__)

KIND = "experts"
"""Collection of the descriptions in the store."""

FIRST_LOOK_SECONDS = 2.0
"""Longest wait for the stored descriptions at the start; a slower store is read later."""

LOOK_SECONDS = 5.0

LAST_WRITE_SECONDS = 2.0
"""Longest wait for pending writes at the stop."""


class DescriptionStore:
    """Tells the catalogue who slept when this service last ran, and writes down what it has learnt.

    Args:
        notes: where it is written.
        catalog: whose experts are remembered.
        pause: seconds from one write to the next.
        look: seconds from one look at what others have dropped to the next.
    """

    def __init__(
        self, notes: KeyValueStore, catalog: Catalog, *, pause: float = 1.0, look: float = LOOK_SECONDS
    ) -> None:
        self._notes = notes
        self._catalog = catalog
        self._pause = pause
        self._look = look
        self._written: dict[str, bytes] = {}
        self._forgetting: set[str] = set()
        """Names of experts that this process is removing."""
        self._tried = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Restores descriptions, then writes changes until the block exits; an unavailable store only disables this."""
        loops = {"stored expert descriptions": self._run, "forgotten experts": self._heed}
        tasks = [asyncio.create_task(supervise(loop, name=name), name=name) for name, loop in loops.items()]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOOK_SECONDS):
                    await self._tried.wait()
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

        The block takes it out of the catalogue.

        Raises:
            Unavailable: the store does not answer.
        """
        self._forgetting.add(name)
        try:
            await self._notes.delete(name)
            self._written.pop(name, None)
            yield
        finally:
            self._forgetting.discard(name)

    async def _run(self) -> None:
        while not await self._recall():  # noqa: ASYNC110  # a store does not say when it is back
            await asyncio.sleep(self._pause)
        revision = ""
        while news := await self._catalog.wait_for_revision(revision):
            revision = news if await self._write() else ""  # empty: tried again
            await asyncio.sleep(self._pause)

    async def _heed(self) -> None:
        """Removes experts whose stored descriptions another replica of the selector has deleted."""
        while True:
            await asyncio.sleep(self._look)
            written = set(self._written)
            try:
                drop_address = written - await self._notes.keys()
            except ServiceError as error:
                log.debug("deleted descriptions unknown: store unavailable", error=error.message)
                continue
            for name in (drop_address & self._written.keys()) - self._forgetting:
                self._written.pop(name, None)
                with suppress(NotFound, FailedPrecondition):  # it is forgotten already, or awake, and then known anew
                    self._catalog.forget(name)
                    log.info("expert removed", expert=name)

    async def _recall(self) -> bool:
        try:
            kept = await self._notes.all()
        except ServiceError as error:
            log.warning("dormant experts not restored: store unavailable", error=error.message, remedy=error.remedy)
            return False
        finally:
            self._tried.set()
        for name, content in kept.items():
            self._written[name] = content
            self._remember(name, content)
        return True

    def _remember(self, name: str, content: bytes) -> None:
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
                content = _lasting(reply)
                if name not in self._forgetting and self._written.get(name) != content:
                    await self._notes.put(name, content)
                    self._written[name] = content
        except ServiceError as error:
            log.warning("expert descriptions not stored", error=error.message, remedy=error.remedy)
            return False
        return True


def _lasting(reply: DescribeResponse) -> bytes:
    """The description without load, revision and loaded state, which change often."""
    lasting = DescribeResponse()
    lasting.CopyFrom(reply)
    lasting.ClearField("load")
    lasting.ClearField("revision")
    for card in lasting.models:
        if card.state == MODEL_STATE_READY:
            card.state = MODEL_STATE_LOADABLE
    return lasting.SerializeToString(deterministic=True)
