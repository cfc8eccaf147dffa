"""Who hosts what, as far as is known: state that is told of every answer and silence, and wakes those who watch it."""

import itertools
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.change_signal import ChangeSignal
from services.common.errors import CorruptData, FailedPrecondition, NotFound
from services.selector.catalog_view import View
from services.selector.replica import Attention, Description, Replica
from services.selector.routing_table import Table

FORGET_SECONDS = 10.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
"""Of an expert: it is shown, typed, and a name in the store."""


def check_name(expert: str) -> None:
    """Whether an expert may go by it.

    Raises:
        CorruptData: it is none.
    """
    if not _NAME.fullmatch(expert):
        raise CorruptData("does not say which expert it is, by a short plain name")


class Catalog:
    """The experts by address, and those that sleep by name.

    Args:
        standard: the kinds of task that are settled for everybody.
        forget_seconds: how long an expert that does not answer is waited for.
        table: what the operator has laid down.
        clock: seconds; never goes back.
    """

    def __init__(
        self,
        standard: Mapping[str, TaskSpec],
        *,
        forget_seconds: float = FORGET_SECONDS,
        table: Table = Table(),  # noqa: B008  # frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._standard = standard
        self._forget_seconds = forget_seconds
        self._table = table
        self._clock = clock
        self._arrivals = itertools.count(1)
        self._replicas: dict[str, Replica] = {}
        self._asleep: dict[str, Replica] = {}
        self._foretold = frozenset[str]()
        self._changed = ChangeSignal()
        self._closed = False
        self.troubles: dict[str, str] = {}
        """What is wrong with where addresses come from, by source."""
        self.view = View((), standard, table)

    # ------------------------------------------------------------ what is learnt

    def listed(self, address: str) -> None:
        """An address is to be asked."""
        replica = self._replicas.get(address) or self._new(address)
        replica.listed = True

    def dropped(self, address: str) -> None:
        """An address is no longer to be asked: who may sleep does now, others may come back for a while."""
        replica = self._replicas[address]
        replica.listed = False
        self._lost(replica, "is no longer listed")
        if replica.description is None or replica.description.reply.may_sleep:
            self._leave(replica)
        self._refresh()

    def removed(self, address: str) -> None:
        """An address is no longer to be asked and does not count from now on: its expert was forgotten."""
        replica = self._replicas.pop(address)
        replica.listed = False
        replica.description = None
        self._refresh()

    def known_revision(self, address: str) -> str:
        """What to tell the expert there that we have; nothing after a silence, it may have started anew."""
        replica = self._replicas[address]
        if replica.description is None or replica.attention is not Attention.ANSWERS:
            return ""
        return replica.description.reply.revision

    def heard(self, address: str, reply: DescribeResponse) -> None:
        """An expert has described itself, or said that nothing changed.

        Raises:
            CorruptData: it does not say who it is, or by what is no name.
        """
        replica = self._replicas[address]
        unchanged = reply.unchanged and replica.attention is Attention.ANSWERS
        if not unchanged:
            check_name(reply.expert)
        replica.carries(reply.load)
        replica.seen = self._clock()
        if not unchanged:
            self._described(replica, reply)

    def missed(self, address: str, trouble: str) -> bool:
        """The server at an address did not answer, or not as an expert does; true if that is news."""
        return self._lost(self._replicas[address], trouble)

    def remembered(self, reply: DescribeResponse) -> None:
        """An expert that may sleep was there in an earlier life of this service."""
        if all(replica.yields_to(reply) for replica in self._counted(reply.expert)):
            self._fell_asleep(Description.of(reply), next(self._arrivals), seen=None)
            self._refresh()

    def foretold(self, replies: Collection[DescribeResponse]) -> None:
        """All experts that the operator has described, as they may sleep; of those that were met, more is known."""
        self._foretold = frozenset(reply.expert for reply in replies)
        for reply in replies:
            self.remembered(reply)

    def expire(self) -> list[str]:
        """Lets go of experts that have been silent for too long, by name; those that may sleep are asleep now."""
        gone = [replica for replica in self._replicas.values() if self._is_overdue(replica)]
        for replica in gone:
            self._leave(replica)
        if gone:
            self._refresh()
        return [replica.expert for replica in gone]

    def check_forgettable(self, name: str) -> None:
        """Whether there is something to forget.

        Raises:
            NotFound: EXPERT, there is none of that name.
            FailedPrecondition: AWAKE, it answers; or FORETOLD, the operator has described it.
        """
        known = self._counted(name)
        if not known:
            raise NotFound(
                f"there is no expert {name}", reason="EXPERT", remedy="list the experts with: hugginggpt experts"
            )
        self.check_described_by_experts_alone(name)
        if any(replica.attention is Attention.ANSWERS for replica in known):
            raise FailedPrecondition(
                f"expert {name} is awake", reason="AWAKE", remedy="stop it, or take its address out of SELECTOR_EXPERTS"
            )

    def check_described_by_experts_alone(self, name: str) -> None:
        """Whether no file of the operator's describes an expert.

        Raises:
            FailedPrecondition: FORETOLD, one does.
        """
        if name in self._foretold:
            remedy = "take its file out of the folder that SELECTOR_ASLEEP names"
            raise FailedPrecondition(f"expert {name} is described to us", reason="FORETOLD", remedy=remedy)

    def knows(self, name: str) -> bool:
        """Whether an expert of that name is in the catalogue, or answered before it became silent."""
        return any(replica.expert == name for replica in self._everyone())

    def only_at(self, addresses: Collection[str]) -> set[str]:
        """The experts that are at no other address, less those that the operator has described."""
        there = {replica.expert for replica in self._replicas.values() if replica.address in addresses}
        others = {replica.expert for replica in self._replicas.values() if replica.address not in addresses}
        return there - others - self._foretold - {""}

    def forget(self, name: str) -> None:
        """Drops what is known of an expert that does not answer.

        Raises:
            NotFound: EXPERT, there is none of that name.
            FailedPrecondition: AWAKE or FORETOLD.
        """
        self.check_forgettable(name)
        for replica in self._counted(name):
            self._discard(replica)
            replica.expert = ""
        self._asleep.pop(name, None)
        self._refresh()

    # ------------------------------------------------------------ what is told

    def now(self) -> float:
        """The time by the catalogue's clock."""
        return self._clock()

    def replicas(self) -> Iterator[Replica]:
        """Every address, whether anything is known of it or not."""
        return iter(self._replicas.values())

    async def beyond(self, revision: str) -> str | None:
        """Waits until the revision is another one than the caller has; None says that the catalogue is closed."""
        while not self._closed:
            if self.view.revision != revision:
                return self.view.revision
            await self._changed.wait()
        return None

    def close(self) -> None:
        """Nothing more will be learnt; those who watch are sent away."""
        self._closed = True
        self._changed.notify()

    # ------------------------------------------------------------ inside

    def _new(self, address: str) -> Replica:
        replica = Replica(address, troubled_since=self._clock())
        self._replicas[address] = replica
        return replica

    def _described(self, replica: Replica, reply: DescribeResponse) -> None:
        sleeper = self._asleep.pop(reply.expert, None)
        if replica.description is None:
            replica.arrival = sleeper.arrival if sleeper else next(self._arrivals)
        replica.expert = reply.expert
        replica.description = Description.of(reply)
        replica.attention, replica.trouble = Attention.ANSWERS, ""
        self._refresh()

    def _everyone(self) -> Iterator[Replica]:
        return itertools.chain(self._replicas.values(), self._asleep.values())

    def _is_overdue(self, replica: Replica) -> bool:
        silent = replica.attention is not Attention.ANSWERS and replica.description is not None
        return silent and self._clock() - replica.troubled_since >= self._forget_seconds

    def _lost(self, replica: Replica, trouble: str) -> bool:
        news = not replica.trouble
        replica.trouble = trouble
        if news:
            replica.troubled_since = self._clock()
        if replica.attention is Attention.ANSWERS:
            replica.attention = Attention.AWAY
            self._refresh()
        return news

    def _counted(self, expert: str) -> list[Replica]:
        """The replicas for whose sake an expert is in the catalogue."""
        return [replica for replica in self._everyone() if replica.description and replica.expert == expert]

    def _leave(self, replica: Replica) -> None:
        """The replica no longer counts; the last one of an expert that may sleep leaves a memory."""
        description = replica.description
        self._discard(replica)
        if description and description.reply.may_sleep and not self._counted(replica.expert):
            self._fell_asleep(description, replica.arrival, replica.seen)

    def _fell_asleep(self, description: Description, arrival: int, seen: float | None) -> None:
        name = description.reply.expert
        self._asleep[name] = Replica("", name, description, arrival, Attention.ASLEEP, seen=seen)

    def _discard(self, replica: Replica) -> None:
        replica.description = None
        if not replica.listed:
            self._replicas.pop(replica.address, None)

    def _refresh(self) -> None:
        before, self.view = self.view.revision, View(list(self._everyone()), self._standard, self._table)
        if self.view.revision != before:
            self._changed.notify()
