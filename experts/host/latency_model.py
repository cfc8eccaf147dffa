"""Predicts how long a batch takes from its cost, by weighted linear regression over past batches."""

from math import inf

DECAY = 0.95
"""Factor by which a batch's weight falls with each later batch."""

MIN_RELATIVE_SPREAD = 0.01
"""Minimum standard deviation of costs, relative to their mean, from which a slope is estimated."""


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
    def is_fitted(self) -> bool:
        """Whether the observed costs differ enough to estimate a slope."""
        return self._slope() is not None

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

    def _slope(self) -> float | None:
        """Seconds per unit of cost, or None if all costs are similar; bounded so that predictions are not negative."""
        if not self._weight or not self._cost:
            return None
        mean_cost, mean_seconds = self._cost / self._weight, self._seconds / self._weight
        variance = self._squares / self._weight - mean_cost * mean_cost
        if variance <= (MIN_RELATIVE_SPREAD * mean_cost) ** 2:
            return None
        covariance = self._products / self._weight - mean_cost * mean_seconds
        return min(max(covariance / variance, 0.0), mean_seconds / mean_cost)
