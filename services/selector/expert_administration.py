"""Lists experts with their states and problems for operators, and removes them."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack, suppress

from google.protobuf.timestamp_pb2 import Timestamp

from protos.hugginggpt.internal.v1.selector_pb2 import Expert
from services.common.errors import FailedPrecondition, NotFound
from services.selector.catalog import ExpertCatalog
from services.selector.discovery import Discovery
from services.selector.dormant_experts import DescriptionStore
from services.selector.replica import Replica, ReplicaState
from services.selector.task_offers import ReplicaOffer


def list_experts(catalog: ExpertCatalog) -> list[Expert]:
    """All experts by name; unknown addresses and failing sources are listed under their own names."""
    replica_offers: dict[str, list[ReplicaOffer]] = defaultdict(list)
    for replica_offer in catalog.view.replica_offers:
        replica_offers[replica_offer.expert].append(replica_offer)
    rows = {name: _row(name, found, catalog) for name, found in replica_offers.items()}
    for name, problem in _errors(catalog):
        row = rows.setdefault(name, Expert(name=name))
        if not row.dormant:
            row.problems.append(problem)
    return [rows[name] for name in sorted(rows)]


class ExpertRemoval:
    """Removes experts by name, and single addresses.

    Args:
        catalog: of experts.
        discovery: polls the addresses.
        descriptions: stored descriptions of experts.
    """

    def __init__(self, catalog: ExpertCatalog, discovery: Discovery, descriptions: DescriptionStore) -> None:
        self._catalog = catalog
        self._discovery = discovery
        self._descriptions = descriptions

    async def forget(self, name: str) -> None:
        """Removes an expert, or one of its addresses. On return its tasks are no longer in the catalogue.

        An expert is also removed with its only address.

        Args:
            name: of the expert, as in its description; or host:port.

        Raises:
            NotFound: EXPERT, neither is known.
            FailedPrecondition: EXPERT_RUNNING, it answers at an address of the settings; EXPERT_PRECONFIGURED, a file
                of the operator describes it; LISTED, its address cannot be removed from its source.
            Unavailable: the object store is unavailable.
        """
        addresses = await self._discovery.addresses_of(name)
        is_expert = self._catalog.knows(name)
        if is_expert:
            self._catalog.check_not_preconfigured(name)
        elif not addresses:
            self._catalog.check_forgettable(name)  # raises NotFound
        self._discovery.check_removable(addresses)
        forgotten = {name} if is_expert else self._catalog.experts_only_at(addresses)
        async with AsyncExitStack() as stack:
            for expert in forgotten:
                await stack.enter_async_context(self._descriptions.forgetting(expert))
            await self._discovery.remove(addresses)
            for expert in forgotten:
                with suppress(NotFound):  # it was removed with its addresses
                    self._catalog.forget(expert)
            if not is_expert:
                self._unlist(addresses)

    def _unlist(self, addresses: Collection[str]) -> None:
        for address in addresses:
            self._discovery.unlist(address)
            if source := self._discovery.source_of(address):
                remedy = "remove it from there, or stop the server behind that name"
                raise FailedPrecondition(f"{address} is listed by {source}", reason="LISTED", remedy=remedy)


def _row(name: str, replica_offers: Sequence[ReplicaOffer], catalog: ExpertCatalog) -> Expert:
    reply = replica_offers[-1].description.reply
    seen = max(
        (replica_offer.replica.seen for replica_offer in replica_offers if replica_offer.replica.seen is not None),
        default=None,
    )
    return Expert(
        name=name,
        revision=reply.revision,
        addresses=sorted(
            replica_offer.replica.address
            for replica_offer in replica_offers
            if replica_offer.state is ReplicaState.REACHABLE
        ),
        scales_to_zero=reply.scales_to_zero,
        dormant=all(replica_offer.state is ReplicaState.DORMANT for replica_offer in replica_offers),
        tasks=sorted(frozenset().union(*(replica_offer.tasks for replica_offer in replica_offers))),
        start_duration=reply.start_duration if reply.HasField("start_duration") else None,
        last_seen_time=None if seen is None else _ago(catalog.now() - seen),
        problems=catalog.view.problems(name),
    )


def _errors(catalog: ExpertCatalog) -> Iterable[tuple[str, str]]:
    for replica in catalog.replicas():
        if replica.error:
            yield replica.expert or replica.address, _error_text(replica, catalog.now())
    for source, error in catalog.source_errors.items():
        if error:
            yield source, f"{source} {error}"


def _error_text(replica: Replica, now: float) -> str:
    return f"{replica.address} {replica.error}, for {now - replica.failing_since:.0f} s now"


def _ago(seconds: float) -> Timestamp:
    moment = Timestamp()
    moment.FromNanoseconds(time.time_ns() - int(seconds * 1e9))
    return moment
