"""Which of the waiting calls run together next."""

import time
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from math import inf
from typing import Any

from experts.host.active_calls import CallUnderWay
from experts.host.handler import Batching
from experts.host.latency_model import Pace
from experts.host.loaded_model import Loaded

PATIENCE_SECONDS = 10.0
"""How long background calls may be overtaken; after that every other batch is theirs."""

QUIET_SECONDS, ALONE = 10.0, 10
"""Seconds without an interactive call after which the background is alone, and how many times longer its batches may
then take: as long as that, whoever comes first waits."""


@dataclass(eq=False)
class Member:
    """One call that waits for its batch."""

    model: Loaded
    kind: str
    """Its task and parameters: only calls of the same kind run together."""
    item: Any
    cost: float
    call: CallUnderWay
    context: Context
    """Of its caller; a batch runs in that of its first member."""
    settle: Callable[[Any], None]
    """Takes what its batch gave it, or an error; on the device's thread."""
    arrived: float = field(default_factory=time.monotonic)
    alone: bool = False
    """It failed with others: it runs by itself now."""
    retried: bool = False
    """It did not fit into memory once."""


class Composer:
    """Puts batches together: interactive calls first, then in the order of arrival.

    Args:
        items: most in one batch of any model.
        background_seconds: most time on the device for a batch that nobody in particular waits for, while people ask.
        clock: seconds that only grow.
    """

    def __init__(self, *, items: int, background_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._items, self._background_seconds = items, background_seconds
        self._clock = clock
        self._overtaken = False
        self._interactive_at = -inf

    def compose(self, waiting: Sequence[Member]) -> list[Member]:
        """The next batch out of those that wait, of whom there is at least one."""
        first = self._first(waiting)
        self._overtaken = not first.call.background
        seconds = self._seconds(first.call)
        if first.alone:
            return [first]
        batching, pace = first.model.batching, first.model.pace
        batch, costs = [first], [first.cost]
        for mate in _mates(first, waiting, batching):
            if len(batch) >= min(batching.items, self._items):
                break
            cost = batching.cost([*costs, mate.cost])
            fits = cost <= batching.budget and pace.seconds(cost) <= seconds
            if fits and (not batching.padded or _pays(pace, cost, batching.cost(costs), mate.cost)):
                batch.append(mate)
                costs.append(mate.cost)
        return batch

    def _seconds(self, call: CallUnderWay) -> float:
        """What the batch of a call may take."""
        now = self._clock()
        if not call.background:
            self._interactive_at = now
            return inf
        alone = now - self._interactive_at > QUIET_SECONDS
        return self._background_seconds * (ALONE if alone else 1)

    def _first(self, waiting: Sequence[Member]) -> Member:
        interactive = [member for member in waiting if not member.call.background]
        background = [member for member in waiting if member.call.background]
        oldest = min(background, key=_arrival, default=None)
        if oldest and (not interactive or (self._overtaken and time.monotonic() - oldest.arrived > PATIENCE_SECONDS)):
            return oldest
        return min(interactive, key=_arrival)


def _mates(first: Member, waiting: Sequence[Member], batching: Batching) -> list[Member]:
    """Those who may run with the first, as they came; of padded ones those nearest in length first."""
    mates = [member for member in waiting if _may_run_together(first, member)]
    if batching.padded:
        return sorted(mates, key=lambda mate: (abs(mate.cost - first.cost), mate.arrived))
    return sorted(mates, key=_arrival)


def _may_run_together(first: Member, other: Member) -> bool:
    return (
        other is not first
        and other.model is first.model
        and other.kind == first.kind
        and other.call.background == first.call.background
        and not other.alone
    )


def _arrival(member: Member) -> float:
    return member.arrived


def _pays(pace: Pace, together: float, without: float, alone: float) -> bool:
    """Whether padding costs less than another batch."""
    return not pace.known or pace.seconds(together) <= pace.seconds(without) + pace.seconds(alone)
