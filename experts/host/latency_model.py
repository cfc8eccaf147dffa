"""How long batches take, learnt from those that ran."""

from math import inf

FADE = 0.95
"""How much a batch still counts when the next has run."""

NARROW = 0.01
"""Costs that differ by less than this share of their mean say nothing of how time grows with cost."""


class Pace:
    """A straight line through the latest batches: some seconds for any batch, and some for each unit of cost."""

    def __init__(self) -> None:
        self._weight = self._cost = self._seconds = self._squares = self._products = 0.0
        self._largest = 0.0

    def learn(self, cost: float, seconds: float) -> None:
        self._weight = self._weight * FADE + 1
        self._cost = self._cost * FADE + cost
        self._seconds = self._seconds * FADE + seconds
        self._squares = self._squares * FADE + cost * cost
        self._products = self._products * FADE + cost * seconds
        self._largest = max(self._largest * FADE, cost)

    @property
    def known(self) -> bool:
        """Whether it can tell what a batch takes from what an item takes."""
        return self._slope() is not None

    def seconds(self, cost: float) -> float:
        """What a batch of that cost is likely to take; infinitely long before any has run.

        Beyond what has run so far it grows at least as fast as the cost: a batch too large is felt by all who wait.
        """
        if not self._weight:
            return inf
        if self._largest and cost > self._largest:
            return self.seconds(self._largest) * cost / self._largest
        mean_cost, mean_seconds = self._cost / self._weight, self._seconds / self._weight
        slope = self._slope()
        if slope is None:
            slope = mean_seconds / mean_cost if mean_cost else 0.0
        return mean_seconds + slope * (cost - mean_cost)

    def _slope(self) -> float | None:
        """Seconds for each unit of cost; None if all batches were alike. It leaves 0 or more for any batch."""
        if not self._weight or not self._cost:
            return None
        mean_cost, mean_seconds = self._cost / self._weight, self._seconds / self._weight
        variance = self._squares / self._weight - mean_cost * mean_cost
        if variance <= (NARROW * mean_cost) ** 2:
            return None
        covariance = self._products / self._weight - mean_cost * mean_seconds
        return min(max(covariance / variance, 0.0), mean_seconds / mean_cost)
