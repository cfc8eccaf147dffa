"""Latency percentiles and a stopwatch."""

import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from math import ceil
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
