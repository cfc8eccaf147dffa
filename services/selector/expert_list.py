"""Lists experts for operators: whether they run, what they offer, and their problems."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from protos.hugginggpt.internal.v1.selector_pb2 import Expert
from services.selector.catalog import ExpertCatalog
from services.selector.replica import Replica, ReplicaState
from services.selector.task_offers import ReplicaOffer


def experts(catalog: ExpertCatalog) -> list[Expert]:
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
