"""Discovers experts: reads the sources of addresses and polls each address with Describe."""

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
from services.selector.address_sources import AddressFolder, Source, StaticAddress
from services.selector.catalog import Catalog
from services.selector.replica import ReplicaState

log = structlog.get_logger(__name__)

FIRST_LOOK_SECONDS = 1.0
"""Longest wait for the first replies at the start; slower experts are added later."""

_ERRORS = {
    StatusCode.UNAVAILABLE: "does not answer",
    StatusCode.DEADLINE_EXCEEDED: "does not answer in time",
    StatusCode.UNIMPLEMENTED: "answers, but is not an expert",
}


@dataclass(frozen=True)
class PollIntervals:
    """Intervals and timeout of Describe calls, in seconds."""

    between: float = 1.0
    """Pause after a reply."""
    again: float = 0.25
    """Pause after an error; doubled after each further error, up to `between`."""
    deadline: float = 2.0
    """Timeout of a call."""


class Discovery:
    """Reads all sources and polls every address they list.

    Args:
        sources: of addresses.
        catalog: receives the replies and errors.
        pace: intervals of the polls.
    """

    def __init__(self, sources: Sequence[Source], catalog: Catalog, pace: PollIntervals) -> None:
        self._sources = sources
        self._catalog = catalog
        self._pace = pace
        self._found: dict[str, frozenset[str]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._awaited: set[Source | str] = set(sources)
        self._looked = asyncio.Event()
        self._listing = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """Held while a source is read, so that an earlier read does not undo a removal."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Discovers experts within the block, which is entered after the first polls or FIRST_LOOK_SECONDS."""
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
            log.info("some experts have not replied yet", addresses=len(self._awaited))

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
                log.warning("expert removed: unreachable for too long", expert=expert)

    # ------------------------------------------------------------ addresses

    async def _watch(self, source: Source, group: asyncio.TaskGroup) -> None:
        while True:
            async with self._listing[source.name]:
                listing = await source.read()
                self._note(source, listing.error)
                if listing.addresses is not None:
                    self._found[source.name] = listing.addresses
                    self._reconcile(group)
            self._seen(source)
            await asyncio.sleep(source.seconds)

    def _note(self, source: Source, error: str) -> None:
        if error and error != self._catalog.source_errors.get(source.name):
            log.warning("address source failed", source=source.name, error=error)
        self._catalog.source_errors[source.name] = error

    def _reconcile(self, group: asyncio.TaskGroup) -> None:
        listed = frozenset().union(*self._found.values())
        for address in sorted(listed - self._following.keys()):
            if not self._looked.is_set():
                self._awaited.add(address)
            self._catalog.listed(address)
            following = supervise(partial(self._follow, address), name=f"expert at {address}")
            self._following[address] = group.create_task(following, name=f"follow {address}")
        for address in sorted(self._following.keys() - listed):
            self._unfollow(address)
            self._catalog.drop_address(address)
            log.info("address no longer listed", address=address)

    def _unfollow(self, address: str) -> None:
        if following := self._following.pop(address, None):
            following.cancel()

    # ------------------------------------------------------------ removal

    async def addresses_of(self, name: str) -> frozenset[str]:
        """Addresses of an expert: of its replicas and in files named after it; or the address itself if it is known.

        Args:
            name: of an expert, or host:port.
        """
        replicas = {replica.address: replica.expert for replica in self._catalog.replicas()}
        known = {address for address, expert in replicas.items() if expert == name}
        filed = frozenset[str]().union(*[await folder.addresses_of(name) for folder in self._folders()])
        known |= {address for address in filed if replicas.get(address, "") in ("", name)}
        if not known and name in frozenset[str]().union(*self._found.values()):
            return frozenset({name})
        return frozenset(known)

    def check_removable(self, addresses: Collection[str]) -> None:
        """Checks that addresses can be removed from address files, or that no expert answers at them.

        Raises:
            FailedPrecondition: EXPERT_RUNNING, an expert answers at an address that no address file lists.
        """
        filed = frozenset[str]().union(*(self._found.get(folder.name, ()) for folder in self._folders()))
        for replica in self._catalog.replicas():
            answers = replica.attention is ReplicaState.ANSWERS and replica.description is not None
            if answers and replica.address in addresses and replica.address not in filed:
                remedy = "stop it, or remove its address from SELECTOR_EXPERTS; hugginggpt up starts those of --experts"
                message = f"expert {replica.expert} is running: it answers at {replica.address}"
                raise FailedPrecondition(message, reason="EXPERT_RUNNING", remedy=remedy)

    async def remove(self, addresses: Collection[str]) -> None:
        """Deletes the address files of these addresses, and stops polling those that are listed nowhere else.

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
                self._catalog.remove_address(address)
                log.info("address no longer listed", address=address)

    def unlist(self, address: str) -> None:
        """Stops polling an address from the settings until this service restarts."""
        for source in self._sources:
            if isinstance(source, StaticAddress) and source.name == address:
                self._found[source.name] = frozenset()
                self._unfollow(address)
                self._catalog.remove_address(address)

    def source_of(self, address: str) -> str:
        """The source that lists an address; empty if none does."""
        return next((name for name, listed in self._found.items() if address in listed), "")

    def _folders(self) -> list[AddressFolder]:
        return [source for source in self._sources if isinstance(source, AddressFolder)]

    # ------------------------------------------------------------ experts

    async def _follow(self, address: str) -> None:
        pause = self._pace.again
        while True:
            answered, error = await self._poll(address)
            if self._catalog.record_failure(address, error):
                log.info("expert unreachable", address=address, error=error)
            self._seen(address)
            pause = self._pace.again if answered else min(2 * pause, self._pace.between)
            await asyncio.sleep(pause)

    async def _poll(self, address: str) -> tuple[bool, str]:
        """Polls until an error, over a new channel, since an old one backs off.

        Returns:
            Whether there was a reply before, and the error.
        """
        answered = False
        try:
            async with dial(address) as channel:
                while True:
                    await self._describe(address, channel)
                    answered = True
                    self._seen(address)
                    await asyncio.sleep(self._pace.between)
        except grpc.aio.AioRpcError as error:
            return answered, _ERRORS.get(error.code(), f"fails with {error.code().name}")
        except CorruptData as error:
            return answered, error.message
        except Exception:
            log.exception("invalid expert description", address=address)  # one broken expert must not hide others
            return answered, "sends an invalid description"

    async def _describe(self, address: str, channel: grpc.aio.Channel) -> None:
        known = self._catalog.known_revision(address)
        request = DescribeRequest(known_revision=known)
        reply = await ExpertServiceStub(channel).Describe(request, timeout=self._pace.deadline)
        self._catalog.record_reply(address, reply)
        if not known:
            log.info("expert found", address=address, expert=reply.expert, version=reply.version)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("discovery of experts stopped", exc_info=error)
