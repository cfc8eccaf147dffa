"""The experts as people see them: awake or not, what they offer, and what is wrong."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from protos.hugginggpt.internal.v1.selector_pb2 import Expert
from services.selector.catalog import Catalog
from services.selector.replica import Attention, Replica
from services.selector.task_offers import Seat


def experts(catalog: Catalog) -> list[Expert]:
    """All of them by name; an address whose expert is not known, and a source that fails, stand under their own."""
    seats: dict[str, list[Seat]] = defaultdict(list)
    for seat in catalog.view.seats:
        seats[seat.expert].append(seat)
    rows = {name: _row(name, found, catalog) for name, found in seats.items()}
    for name, problem in _troubles(catalog):
        row = rows.setdefault(name, Expert(name=name))
        if not row.dormant:
            row.problems.append(problem)
    return [rows[name] for name in sorted(rows)]


def _row(name: str, seats: Sequence[Seat], catalog: Catalog) -> Expert:
    reply = seats[-1].description.reply
    seen = max((seat.replica.seen for seat in seats if seat.replica.seen is not None), default=None)
    return Expert(
        name=name,
        revision=reply.revision,
        addresses=sorted(seat.replica.address for seat in seats if seat.attention is Attention.ANSWERS),
        may_sleep=reply.may_sleep,
        dormant=all(seat.attention is Attention.ASLEEP for seat in seats),
        tasks=sorted(frozenset().union(*(seat.tasks for seat in seats))),
        start_duration=reply.start_duration if reply.HasField("start_duration") else None,
        last_seen_time=None if seen is None else _ago(catalog.now() - seen),
        problems=catalog.view.problems(name),
    )


def _troubles(catalog: Catalog) -> Iterable[tuple[str, str]]:
    for replica in catalog.replicas():
        if replica.trouble:
            yield replica.expert or replica.address, _silence(replica, catalog.now())
    for source, trouble in catalog.troubles.items():
        if trouble:
            yield source, f"{source} {trouble}"


def _silence(replica: Replica, now: float) -> str:
    return f"{replica.address} {replica.trouble}, for {now - replica.troubled_since:.0f} s now"


def _ago(seconds: float) -> Timestamp:
    moment = Timestamp()
    moment.FromNanoseconds(time.time_ns() - int(seconds * 1e9))
    return moment
