"""Keeps the catalogue up to date: looks where addresses are listed, and asks every address what it is."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import structlog
from grpc import StatusCode

from protos.hugginggpt.v1.expert_pb2 import DescribeRequest
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from services.runtime.channel import dial
from services.runtime.errors import CorruptData
from services.selector.catalog import Catalog
from services.selector.sources import Source

log = structlog.get_logger(__name__)

FIRST_LOOK_SECONDS = 1.0
"""Longest wait for the first answers; what is slower comes later."""

_TROUBLES = {
    StatusCode.UNAVAILABLE: "does not answer",
    StatusCode.DEADLINE_EXCEEDED: "does not answer in time",
    StatusCode.UNIMPLEMENTED: "answers, but is no expert",
}


@dataclass(frozen=True)
class Pace:
    """How often experts are asked, in seconds."""

    between: float = 1.0
    """From an answer to the next question."""
    again: float = 0.25
    """From a silence to the next question; doubles with every silence until it is as long as between."""
    deadline: float = 2.0
    """A slower answer is a silence."""


class Discovery:
    """Follows the sources and every address they list.

    Args:
        sources: where addresses are listed.
        catalog: told of what is found.
        pace: how often experts are asked.
    """

    def __init__(self, sources: Sequence[Source], catalog: Catalog, pace: Pace) -> None:
        self._sources = sources
        self._catalog = catalog
        self._pace = pace
        self._found: dict[str, frozenset[str]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._awaited: set[Source | str] = set(sources)
        self._looked = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Finds experts until the block exits; enters it when all that are there have been asked once."""
        task = asyncio.create_task(self._run(), name="discovery")
        task.add_done_callback(_report)
        try:
            await self._first_look()
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _first_look(self) -> None:
        if not self._sources:
            return
        try:
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await self._looked.wait()
        except TimeoutError:
            log.info("some experts have not answered yet", addresses=len(self._awaited))

    def _seen(self, source_or_address: Source | str) -> None:
        self._awaited.discard(source_or_address)
        if not self._awaited:
            self._looked.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._expire(), name="expire")
            for source in self._sources:
                group.create_task(self._watch(source, group), name=f"watch {source.name}")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._pace.again)
            for expert in self._catalog.expire():
                log.warning("an expert is gone", expert=expert)

    # ------------------------------------------------------------ addresses

    async def _watch(self, source: Source, group: asyncio.TaskGroup) -> None:
        while True:
            listing = await source.look()
            self._note(source, listing.trouble)
            if listing.addresses is not None:
                self._found[source.name] = listing.addresses
                self._reconcile(group)
            self._seen(source)
            await asyncio.sleep(source.seconds)

    def _note(self, source: Source, trouble: str) -> None:
        if trouble and trouble != self._catalog.troubles.get(source.name):
            log.warning("where experts are listed", source=source.name, trouble=trouble)
        self._catalog.troubles[source.name] = trouble

    def _reconcile(self, group: asyncio.TaskGroup) -> None:
        wanted = frozenset().union(*self._found.values())
        for address in sorted(wanted - self._following.keys()):
            if not self._looked.is_set():
                self._awaited.add(address)
            self._catalog.listed(address)
            self._following[address] = group.create_task(self._follow(address), name=f"follow {address}")
        for address in sorted(self._following.keys() - wanted):
            self._following.pop(address).cancel()
            self._catalog.dropped(address)
            log.info("an address is no longer listed", address=address)

    # ------------------------------------------------------------ experts

    async def _follow(self, address: str) -> None:
        pause = self._pace.again
        while True:
            answered, trouble = await self._listen(address)
            if self._catalog.missed(address, trouble):
                log.info("an expert is silent", address=address, trouble=trouble)
            self._seen(address)
            pause = self._pace.again if answered else min(2 * pause, self._pace.between)
            await asyncio.sleep(pause)

    async def _listen(self, address: str) -> tuple[bool, str]:
        """Asks until there is no answer, over a new channel, as an old one backs off.

        Returns:
            Whether there was an answer before, and what is wrong.
        """
        answered = False
        try:
            async with dial(address) as channel:
                while True:
                    await self._ask(address, channel)
                    answered = True
                    self._seen(address)
                    await asyncio.sleep(self._pace.between)
        except grpc.aio.AioRpcError as error:
            return answered, _TROUBLES.get(error.code(), f"fails with {error.code().name}")
        except CorruptData as error:
            return answered, error.message
        except Exception:
            log.exception("a description cannot be used", address=address)  # one broken expert must not hide others
            return answered, "describes itself in a way that cannot be used"

    async def _ask(self, address: str, channel: grpc.aio.Channel) -> None:
        known = self._catalog.known_revision(address)
        request = DescribeRequest(known_revision=known)
        reply = await ExpertServiceStub(channel).Describe(request, timeout=self._pace.deadline)
        self._catalog.heard(address, reply)
        if not known:
            log.info("an expert answers", address=address, expert=reply.expert, version=reply.version)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("experts are no longer followed", exc_info=error)
