"""Keeps the catalogue up to date: looks where addresses are listed, and asks every address what it is."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import grpc
import structlog
from grpc import StatusCode

from protos.hugginggpt.v1.expert_pb2 import DescribeRequest
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from services.common.channel import dial
from services.common.errors import CorruptData, FailedPrecondition
from services.common.supervision import supervise
from services.selector.address_sources import Folder, Listed, Source
from services.selector.catalog import Catalog
from services.selector.replica import Attention

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
        self._listing = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """Held while a source is read, so that what was read before a removal does not undo it."""

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
            group.create_task(supervise(self._expire, name="expert expiry"), name="expire")
            for source in self._sources:
                watching = supervise(partial(self._watch, source, group), name=f"address source {source.name}")
                group.create_task(watching, name=f"watch {source.name}")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._pace.again)
            for expert in self._catalog.expire():
                log.warning("an expert is gone", expert=expert)

    # ------------------------------------------------------------ addresses

    async def _watch(self, source: Source, group: asyncio.TaskGroup) -> None:
        while True:
            async with self._listing[source.name]:
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
            following = supervise(partial(self._follow, address), name=f"expert at {address}")
            self._following[address] = group.create_task(following, name=f"follow {address}")
        for address in sorted(self._following.keys() - wanted):
            self._unfollow(address)
            self._catalog.dropped(address)
            log.info("an address is no longer listed", address=address)

    def _unfollow(self, address: str) -> None:
        if following := self._following.pop(address, None):
            following.cancel()

    # ------------------------------------------------------------ forgetting

    async def addresses_of(self, name: str) -> frozenset[str]:
        """The addresses that stand for an expert: of its replicas, and of files named after it; or one address itself.

        Args:
            name: of an expert, or host:port.
        """
        replicas = {replica.address: replica.expert for replica in self._catalog.replicas()}
        known = {address for address, expert in replicas.items() if expert == name}
        filed = frozenset[str]().union(*[await folder.named(name) for folder in self._folders()])
        known |= {address for address in filed if replicas.get(address, "") in ("", name)}
        if not known and name in frozenset[str]().union(*self._found.values()):
            return frozenset({name})
        return frozenset(known)

    def check_removable(self, addresses: Collection[str]) -> None:
        """Whether addresses can be taken out of where they are listed, or nothing answers at them.

        Raises:
            FailedPrecondition: AWAKE, an expert answers at an address that no address file lists.
        """
        filed = frozenset[str]().union(*(self._found.get(folder.name, ()) for folder in self._folders()))
        for replica in self._catalog.replicas():
            answers = replica.attention is Attention.ANSWERS and replica.description is not None
            if answers and replica.address in addresses and replica.address not in filed:
                remedy = "stop it, or take its address out of SELECTOR_EXPERTS; hugginggpt up starts those of --experts"
                message = f"expert {replica.expert} is awake: it answers at {replica.address}"
                raise FailedPrecondition(message, reason="AWAKE", remedy=remedy)

    async def remove(self, addresses: Collection[str]) -> None:
        """Deletes the address files of addresses and stops following those that are listed nowhere else.

        Raises:
            FailedPrecondition: LISTED, a file cannot be deleted.
        """
        for folder in self._folders():
            async with self._listing[folder.name]:
                await folder.remove(addresses)
                self._found[folder.name] = self._found.get(folder.name, frozenset()) - frozenset(addresses)
        for address in frozenset(addresses) & self._following.keys():
            if not any(address in listed for listed in self._found.values()):
                self._unfollow(address)
                self._catalog.removed(address)
                log.info("an address is no longer listed", address=address)

    def unlist(self, address: str) -> None:
        """Stops following an address that the settings list, until this service starts again."""
        for source in self._sources:
            if isinstance(source, Listed) and source.name == address:
                self._found[source.name] = frozenset()
                self._unfollow(address)
                self._catalog.removed(address)

    def source_of(self, address: str) -> str:
        """The source that lists an address; empty if none does."""
        return next((name for name, listed in self._found.items() if address in listed), "")

    def _folders(self) -> list[Folder]:
        return [source for source in self._sources if isinstance(source, Folder)]

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
