"""Selects which of the waiting calls of a model run together in its next batch."""

import time
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any

from experts.host.active_calls import ActiveCall
from experts.host.handler import Batching
from experts.host.loaded_model import LoadedModel

MAX_OVERTAKEN_SECONDS = 10.0
"""Wait of the oldest background call after which every other batch is a background batch."""

INTERACTIVE_IDLE_SECONDS = 10.0
"""Time without an interactive call after which background batches may be longer."""
IDLE_DURATION_FACTOR = 10
"""How many times longer background batches may then take; the first interactive call waits at most that long."""


@dataclass(eq=False)
class QueuedCall:
    """One call waiting for its batch."""

    model: LoadedModel
    batch_key: Hashable
    """Task and the handler's batch key; only calls with the same key share a batch."""
    item: Any
    cost: float
    call: ActiveCall
    context: Context
    """The caller's context variables; a batch runs in the context of its first call."""
    deliver: Callable[[Any], None] = lambda _outcome: None
    """Receives the result or the error; called on the device's thread. Set by the batcher."""
    arrived_at: float = field(default_factory=time.monotonic)
    runs_alone: bool = False
    """A batch with this call failed: it now runs without peers."""
    was_retried: bool = False
    """A batch with this call ran out of memory once."""


class BatchComposer:
    """Composes batches: interactive calls first, then by arrival.

    Args:
        background_seconds: maximum predicted duration of a background batch while interactive calls arrive.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, *, background_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._background_seconds, self._clock = background_seconds, clock
        self._background_was_overtaken = False
        self._last_interactive = -inf

    def compose(self, waiting: Sequence[QueuedCall]) -> list[QueuedCall]:
        """Returns the next batch out of the waiting calls, of which there is at least one."""
        first = self._first(waiting)
        self._background_was_overtaken = not first.call.background
        max_seconds = self._max_seconds(first.call)
        if first.runs_alone:
            return [first]
        batching, latency_model = first.model.batching, first.model.latency_model
        batch, costs = [first], [first.cost]
        for peer in _batch_peers(first, waiting, batching):
            if len(batch) >= batching.items:
                break
            cost = batching.cost([*costs, peer.cost])
            if cost <= batching.budget and latency_model.predict(cost) <= max_seconds:
                batch.append(peer)
                costs.append(peer.cost)
        return batch[: _fastest_count(costs, latency_model.fixed_cost)] if batching.padded else batch

    def _max_seconds(self, call: ActiveCall) -> float:
        """Returns how long the batch of a call may take."""
        now = self._clock()
        if not call.background:
            self._last_interactive = now
            return inf
        is_idle = now - self._last_interactive > INTERACTIVE_IDLE_SECONDS
        return self._background_seconds * (IDLE_DURATION_FACTOR if is_idle else 1)

    def _first(self, waiting: Sequence[QueuedCall]) -> QueuedCall:
        interactive = [queued for queued in waiting if not queued.call.background]
        background = [queued for queued in waiting if queued.call.background]
        oldest = min(background, key=_arrival, default=None)
        if oldest and (
            not interactive
            or (self._background_was_overtaken and time.monotonic() - oldest.arrived_at > MAX_OVERTAKEN_SECONDS)
        ):
            return oldest
        return min(interactive, key=_arrival)


def _batch_peers(first: QueuedCall, waiting: Sequence[QueuedCall], batching: Batching) -> list[QueuedCall]:
    """Returns the calls that may share a batch with the first: by arrival, or by similar length if they are padded."""
    peers = [queued for queued in waiting if _may_run_together(first, queued)]
    if batching.padded:
        return sorted(peers, key=lambda peer: (abs(peer.cost - first.cost), peer.arrived_at))
    return sorted(peers, key=_arrival)


def _may_run_together(first: QueuedCall, other: QueuedCall) -> bool:
    return (
        other is not first
        and other.model is first.model
        and other.batch_key == first.batch_key
        and other.call.background == first.call.background
        and not other.runs_alone
    )


def _arrival(queued: QueuedCall) -> float:
    return queued.arrived_at


def _fastest_count(costs: Sequence[float], fixed_cost: float) -> int:
    """Returns how many of these items, from the first on, take the least time per unit of cost in a padded batch.

    Fewer would spread the fixed time of a batch over less, more would take longer for padding than that saves.
    """
    longest_and_total = zip(accumulate(costs, max), accumulate(costs), strict=True)
    times = [
        (fixed_cost + longest * count) / total if total else inf
        for count, (longest, total) in enumerate(longest_and_total, start=1)
    ]
    return len(times) - times[::-1].index(min(times))
