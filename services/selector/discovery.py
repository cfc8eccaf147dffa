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
from services.selector.catalog import ExpertCatalog
from services.selector.replica import ReplicaState

log = structlog.get_logger(__name__)

FIRST_POLL_SECONDS = 1.0
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
        intervals: of the polls.
    """

    def __init__(self, sources: Sequence[Source], catalog: ExpertCatalog, intervals: PollIntervals) -> None:
        self._sources = sources
        self._catalog = catalog
        self._intervals = intervals
        self._found: dict[str, frozenset[str]] = {}
        self._polling: dict[str, asyncio.Task[None]] = {}
        self._awaited: set[Source | str] = set(sources)
        self._all_polled = asyncio.Event()
        self._listing = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """Held while a source is read, so that an earlier read does not undo a removal."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Discovers experts within the block, which is entered after the first polls or FIRST_POLL_SECONDS."""
        task = asyncio.create_task(self._run(), name="discovery")
        task.add_done_callback(_log_error)
        try:
            await self._wait_for_first_polls()
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _wait_for_first_polls(self) -> None:
        if not self._sources:
            return
        try:
            async with asyncio.timeout(FIRST_POLL_SECONDS):
                await self._all_polled.wait()
        except TimeoutError:
            log.info("some experts have not replied yet", addresses=len(self._awaited))

    def _record_first_poll(self, source_or_address: Source | str) -> None:
        self._awaited.discard(source_or_address)
        if not self._awaited:
            self._all_polled.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(supervise(self._expire, name="expert expiry"), name="expire")
            for source in self._sources:
                watching = supervise(partial(self._watch, source, group), name=f"address source {source.name}")
                group.create_task(watching, name=f"watch {source.name}")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._intervals.again)
            for expert in self._catalog.expire():
                log.warning("expert removed: unreachable for too long", expert=expert)

    # ------------------------------------------------------------ addresses

    async def _watch(self, source: Source, group: asyncio.TaskGroup) -> None:
        while True:
            async with self._listing[source.name]:
                listing = await source.read()
                self._record_source_error(source, listing.error)
                if listing.addresses is not None:
                    self._found[source.name] = listing.addresses
                    self._reconcile(group)
            self._record_first_poll(source)
            await asyncio.sleep(source.seconds)

    def _record_source_error(self, source: Source, error: str) -> None:
        if error and error != self._catalog.source_errors.get(source.name):
            log.warning("address source failed", source=source.name, error=error)
        self._catalog.source_errors[source.name] = error

    def _reconcile(self, group: asyncio.TaskGroup) -> None:
        listed = frozenset().union(*self._found.values())
        for address in sorted(listed - self._polling.keys()):
            if not self._all_polled.is_set():
                self._awaited.add(address)
            self._catalog.add_address(address)
            polling = supervise(partial(self._poll_repeatedly, address), name=f"expert at {address}")
            self._polling[address] = group.create_task(polling, name=f"follow {address}")
        for address in sorted(self._polling.keys() - listed):
            self._stop_polling(address)
            self._catalog.drop_address(address)
            log.info("address no longer listed", address=address)

    def _stop_polling(self, address: str) -> None:
        if polling := self._polling.pop(address, None):
            polling.cancel()

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
            answers = replica.state is ReplicaState.REACHABLE and replica.description is not None
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
        for address in frozenset(addresses) & self._polling.keys():
            if not any(address in listed for listed in self._found.values()):
                self._stop_polling(address)
                self._catalog.remove_address(address)
                log.info("address no longer listed", address=address)

    def unlist(self, address: str) -> None:
        """Stops polling an address from the settings until this service restarts."""
        for source in self._sources:
            if isinstance(source, StaticAddress) and source.name == address:
                self._found[source.name] = frozenset()
                self._stop_polling(address)
                self._catalog.remove_address(address)

    def source_of(self, address: str) -> str:
        """The source that lists an address; empty if none does."""
        return next((name for name, listed in self._found.items() if address in listed), "")

    def _folders(self) -> list[AddressFolder]:
        return [source for source in self._sources if isinstance(source, AddressFolder)]

    # ------------------------------------------------------------ experts

    async def _poll_repeatedly(self, address: str) -> None:
        pause = self._intervals.again
        while True:
            answered, error = await self._poll(address)
            if self._catalog.record_failure(address, error):
                log.info("expert unreachable", address=address, error=error)
            self._record_first_poll(address)
            pause = self._intervals.again if answered else min(2 * pause, self._intervals.between)
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
                    self._record_first_poll(address)
                    await asyncio.sleep(self._intervals.between)
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
        reply = await ExpertServiceStub(channel).Describe(request, timeout=self._intervals.deadline)
        self._catalog.record_reply(address, reply)
        if not known:
            log.info("expert found", address=address, expert=reply.expert, version=reply.version)


def _log_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("discovery of experts stopped", exc_info=error)
