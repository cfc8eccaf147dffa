"""Catalogue of experts: replicas, their states and descriptions; notifies watchers of changes."""

import itertools
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.change_signal import ChangeSignal
from services.common.errors import CorruptData, FailedPrecondition, NotFound
from services.selector.catalog_view import CatalogView
from services.selector.replica import Description, Replica, ReplicaState
from services.selector.routing_table import RoutingTable

FORGET_SECONDS = 10.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
"""Valid names of experts: they are displayed, typed by users, and used as keys in the store."""


def check_name(expert: str) -> None:
    """Checks the name of an expert.

    Raises:
        CorruptData: the name is invalid.
    """
    if not _NAME.fullmatch(expert):
        raise CorruptData("has no valid expert name: 1 to 63 letters, digits, spaces, dots, dashes and underscores")


class ExpertCatalog:
    """Experts by address, and dormant experts by name.

    Args:
        standard: specs of the standard tasks.
        forget_seconds: seconds after which an unreachable expert is removed.
        table: the routing table of the operator.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        standard: Mapping[str, TaskSpec],
        *,
        forget_seconds: float = FORGET_SECONDS,
        table: RoutingTable = RoutingTable(),  # noqa: B008  # frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._standard = standard
        self._forget_seconds = forget_seconds
        self._table = table
        self._clock = clock
        self._arrivals = itertools.count(1)
        self._replicas: dict[str, Replica] = {}
        self._dormant: dict[str, Replica] = {}
        self._preconfigured = frozenset[str]()
        self._changed = ChangeSignal()
        self._closed = False
        self.source_errors: dict[str, str] = {}
        """Errors of address sources, by source."""
        self.view = CatalogView((), standard, table)

    # ------------------------------------------------------------ recording

    def add_address(self, address: str) -> None:
        """Adds an address to be polled."""
        replica = self._replicas.get(address) or self._new(address)
        replica.listed = True

    def drop_address(self, address: str) -> None:
        """Drops an unlisted address: its expert becomes dormant if it scales to zero, else unreachable."""
        replica = self._replicas[address]
        replica.listed = False
        self._record_error(replica, "is no longer listed")
        if replica.description is None or replica.description.reply.scales_to_zero:
            self._remove(replica)
        self._refresh()

    def remove_address(self, address: str) -> None:
        """Removes an address and its expert's description at once, because the expert was removed."""
        replica = self._replicas.pop(address)
        replica.listed = False
        replica.description = None
        self._refresh()

    def known_revision(self, address: str) -> str:
        """Last revision of the expert at an address; empty after an error, since it may have restarted."""
        replica = self._replicas[address]
        if replica.description is None or replica.state is not ReplicaState.REACHABLE:
            return ""
        return replica.description.reply.revision

    def record_reply(self, address: str, reply: DescribeResponse) -> None:
        """Records a reply of Describe, with a description or "unchanged".

        Raises:
            CorruptData: the reply has no valid expert name.
        """
        replica = self._replicas[address]
        unchanged = reply.unchanged and replica.state is ReplicaState.REACHABLE
        if not unchanged:
            check_name(reply.expert)
        replica.record_load(reply.load)
        replica.seen = self._clock()
        if not unchanged:
            self._set_description(replica, reply)

    def record_failure(self, address: str, error: str) -> bool:
        """Records an error of the server at an address; returns whether it was reachable before."""
        return self._record_error(self._replicas[address], error)

    def restore(self, reply: DescribeResponse) -> None:
        """Adds an expert that was stored by an earlier process, as dormant."""
        if all(replica.is_replaceable_by(reply) for replica in self._replicas_of(reply.expert)):
            self._add_dormant(Description.of(reply), next(self._arrivals), seen=None)
            self._refresh()

    def set_preconfigured(self, replies: Collection[DescribeResponse]) -> None:
        """Sets the experts that the operator has described; descriptions received from experts take precedence."""
        self._preconfigured = frozenset(reply.expert for reply in replies)
        for reply in replies:
            self.restore(reply)

    def expire(self) -> list[str]:
        """Removes replicas that were unreachable for too long; returns their experts. The last may become dormant."""
        expired = [replica for replica in self._replicas.values() if self._is_overdue(replica)]
        for replica in expired:
            self._remove(replica)
        if expired:
            self._refresh()
        return [replica.expert for replica in expired]

    def check_forgettable(self, name: str) -> None:
        """Checks that an expert can be removed.

        Raises:
            NotFound: EXPERT, there is none of that name.
            FailedPrecondition: EXPERT_RUNNING, it answers; EXPERT_PRECONFIGURED, a file of the operator describes it.
        """
        known = self._replicas_of(name)
        if not known:
            raise NotFound(
                f"there is no expert {name}", reason="EXPERT", remedy="list the experts with: hugginggpt experts"
            )
        self.check_not_preconfigured(name)
        if any(replica.state is ReplicaState.REACHABLE for replica in known):
            raise FailedPrecondition(
                f"expert {name} is running",
                reason="EXPERT_RUNNING",
                remedy="stop it, or remove its address from SELECTOR_EXPERTS",
            )

    def check_not_preconfigured(self, name: str) -> None:
        """Checks that no file of the operator describes an expert.

        Raises:
            FailedPrecondition: EXPERT_PRECONFIGURED, one does.
        """
        if name in self._preconfigured:
            remedy = "remove its file from the folder in SELECTOR_EXPERT_DESCRIPTIONS"
            raise FailedPrecondition(f"expert {name} is preconfigured", reason="EXPERT_PRECONFIGURED", remedy=remedy)

    def knows(self, name: str) -> bool:
        """Whether an expert of that name is in the catalogue, or was before it became unreachable."""
        return any(replica.expert == name for replica in self._all_replicas())

    def experts_only_at(self, addresses: Collection[str]) -> set[str]:
        """Names of the experts that have no other addresses, without preconfigured ones."""
        at_addresses = {replica.expert for replica in self._replicas.values() if replica.address in addresses}
        elsewhere = {replica.expert for replica in self._replicas.values() if replica.address not in addresses}
        return at_addresses - elsewhere - self._preconfigured - {""}

    def forget(self, name: str) -> None:
        """Removes an expert that is not reachable.

        Raises:
            NotFound: EXPERT, there is none of that name.
            FailedPrecondition: EXPERT_RUNNING or EXPERT_PRECONFIGURED.
        """
        self.check_forgettable(name)
        for replica in self._replicas_of(name):
            self._discard(replica)
            replica.expert = ""
        self._dormant.pop(name, None)
        self._refresh()

    # ------------------------------------------------------------ reading

    def now(self) -> float:
        """Current time of the catalogue's clock."""
        return self._clock()

    def replicas(self) -> Iterator[Replica]:
        """All replicas, including those without a description."""
        return iter(self._replicas.values())

    async def wait_for_revision(self, revision: str) -> str | None:
        """Waits for another revision than the caller's and returns it; None once the catalogue is closed."""
        while not self._closed:
            if self.view.revision != revision:
                return self.view.revision
            await self._changed.wait()
        return None

    def close(self) -> None:
        """Ends all watches."""
        self._closed = True
        self._changed.notify()

    # ------------------------------------------------------------ internals

    def _new(self, address: str) -> Replica:
        replica = Replica(address, failing_since=self._clock())
        self._replicas[address] = replica
        return replica

    def _set_description(self, replica: Replica, reply: DescribeResponse) -> None:
        dormant = self._dormant.pop(reply.expert, None)
        if replica.description is None:
            replica.arrival = dormant.arrival if dormant else next(self._arrivals)
        replica.expert = reply.expert
        replica.description = Description.of(reply)
        replica.state, replica.error = ReplicaState.REACHABLE, ""
        self._refresh()

    def _all_replicas(self) -> Iterator[Replica]:
        return itertools.chain(self._replicas.values(), self._dormant.values())

    def _is_overdue(self, replica: Replica) -> bool:
        unreachable = replica.state is not ReplicaState.REACHABLE and replica.description is not None
        return unreachable and self._clock() - replica.failing_since >= self._forget_seconds

    def _record_error(self, replica: Replica, error: str) -> bool:
        is_new = not replica.error
        replica.error = error
        if is_new:
            replica.failing_since = self._clock()
        if replica.state is ReplicaState.REACHABLE:
            replica.state = ReplicaState.UNREACHABLE
            self._refresh()
        return is_new

    def _replicas_of(self, expert: str) -> list[Replica]:
        """Replicas with a description of this expert."""
        return [replica for replica in self._all_replicas() if replica.description and replica.expert == expert]

    def _remove(self, replica: Replica) -> None:
        """Removes a replica; the last one of an expert that may be dormant is replaced by a dormant entry."""
        description = replica.description
        self._discard(replica)
        if description and description.reply.scales_to_zero and not self._replicas_of(replica.expert):
            self._add_dormant(description, replica.arrival, replica.seen)

    def _add_dormant(self, description: Description, arrival: int, seen: float | None) -> None:
        name = description.reply.expert
        self._dormant[name] = Replica("", name, description, arrival, ReplicaState.DORMANT, seen=seen)

    def _discard(self, replica: Replica) -> None:
        replica.description = None
        if not replica.listed:
            self._replicas.pop(replica.address, None)

    def _refresh(self) -> None:
        before, self.view = self.view.revision, CatalogView(list(self._all_replicas()), self._standard, self._table)
        if self.view.revision != before:
            self._changed.notify()
