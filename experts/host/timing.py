"""How long things take."""

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


class Times:
    """Median and 95th percentile of the latest calls, in seconds; 0 until measured.

    They change only when they are off by a quarter, so that what is published does not change with every call.
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
        self.p50 = _kept(self.p50, ordered[ceil(0.50 * len(ordered)) - 1])
        self.p95 = _kept(self.p95, ordered[ceil(0.95 * len(ordered)) - 1])


def _kept(old: float, new: float) -> float:
    return old if old / TOLERANCE <= new <= old * TOLERANCE else new


class Stopwatch:
    """Adds up the time spent in functions, on whichever thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - began
