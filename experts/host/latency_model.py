"""Latencies: percentiles, a stopwatch, and a prediction of how long a batch takes."""

import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from math import ceil, inf
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

WINDOW = 100
TOLERANCE = 1.25


class LatencyStats:
    """Median and 95th percentile of the last WINDOW calls, in seconds; 0 until measured.

    A value changes only when the measured one differs by more than TOLERANCE, so that the published description does
    not change with every call.
    """

    def __init__(self) -> None:
        self.p50 = 0.0
        self.p95 = 0.0
        self._latest: deque[float] = deque()
        self._ordered: list[float] = []

    def add(self, seconds: float) -> None:
        self._latest.append(seconds)
        ordered = self._ordered
        insort(ordered, seconds)
        if len(ordered) > WINDOW:
            del ordered[bisect_left(ordered, self._latest.popleft())]
        self.p50 = _smooth(self.p50, ordered[ceil(0.50 * len(ordered)) - 1])
        self.p95 = _smooth(self.p95, ordered[ceil(0.95 * len(ordered)) - 1])


def _smooth(old: float, new: float) -> float:
    return old if old / TOLERANCE <= new <= old * TOLERANCE else new


class Stopwatch:
    """Sums the time spent in functions, on any thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the function and returns its result."""
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - began


DECAY = 0.95
"""Factor by which a batch's weight falls with each later batch."""

MIN_RELATIVE_SPREAD = 0.01
"""Minimum standard deviation of costs, relative to their mean, from which a slope is estimated."""
MIN_SPREAD_OF_FIXED_COST = 0.1
"""The same for the fixed cost, which lies farther from the observed costs."""
UNKNOWN_FIXED_SHARE = 0.25
"""Fixed cost that is assumed while it cannot be estimated, relative to the mean cost of batches."""


class LatencyModel:
    """Linear model of batch latency: fixed seconds per batch plus seconds per unit of cost."""

    def __init__(self) -> None:
        self._weight = self._cost = self._seconds = self._squares = self._products = 0.0
        self._largest = 0.0

    def observe(self, cost: float, seconds: float) -> None:
        """Adds a measured batch."""
        self._weight = self._weight * DECAY + 1
        self._cost = self._cost * DECAY + cost
        self._seconds = self._seconds * DECAY + seconds
        self._squares = self._squares * DECAY + cost * cost
        self._products = self._products * DECAY + cost * seconds
        self._largest = max(self._largest * DECAY, cost)

    @property
    def fixed_cost(self) -> float:
        """The cost that takes as long as the fixed seconds of a batch; infinity if all batches take as long as others.

        While the costs of batches are too similar to tell, a share of UNKNOWN_FIXED_SHARE is assumed: small enough that
        padded batches are not filled with items of any length, and large enough that small batches grow. Either makes
        their costs differ. Before the first batch it is infinity.
        """
        if not self._weight:
            return inf
        mean_cost, slope = self._cost / self._weight, self._slope(MIN_SPREAD_OF_FIXED_COST)
        if slope is None:
            return mean_cost * UNKNOWN_FIXED_SHARE
        return self._seconds / self._weight / slope - mean_cost if slope else inf

    def predict(self, cost: float) -> float:
        """Returns the expected seconds of a batch; infinity before the first observation.

        Above the largest observed cost the prediction grows at least linearly with the cost, because an oversized
        batch delays every waiting call.
        """
        if not self._weight:
            return inf
        if self._largest and cost > self._largest:
            return self.predict(self._largest) * cost / self._largest
        mean_cost, mean_seconds = self._cost / self._weight, self._seconds / self._weight
        slope = self._slope()
        if slope is None:
            slope = mean_seconds / mean_cost if mean_cost else 0.0
        return mean_seconds + slope * (cost - mean_cost)

    def _slope(self, min_spread: float = MIN_RELATIVE_SPREAD) -> float | None:
        """Seconds per unit of cost, or None if all costs are similar; bounded so that predictions are not negative."""
        if not self._weight or not self._cost:
            return None
        mean_cost, mean_seconds = self._cost / self._weight, self._seconds / self._weight
        variance = self._squares / self._weight - mean_cost * mean_cost
        if variance <= (min_spread * mean_cost) ** 2:
            return None
        covariance = self._products / self._weight - mean_cost * mean_seconds
        return min(max(covariance / variance, 0.0), mean_seconds / mean_cost)
