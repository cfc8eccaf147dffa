"""What was measured of a house that is asked at rising rates, and what its model makes of the same rates."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.open_loop.knee import knee
from tests.bench.open_loop.samples import Point
from tests.bench.open_loop.schedule import poisson
from tests.bench.open_loop.simulation import Model, exponential
from tests.bench.saturation import PLACES

SEED = 5
SHARES = (0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Rates, of what callers get that wait for their answers; the first is no load."""
SECONDS, FEWEST = 10.0, 150
"""Each rate lasts so long, and until so many are expected to have come."""


@dataclass(frozen=True)
class Measurement:
    """Rates and what they came to."""

    closed: float
    """Runs a second of callers that wait."""
    seconds: Mapping[str, float]
    """Of a core, that a run takes of each process then."""
    rising: Sequence[Point]
    past: Mapping[float, Point]
    """By how many times the knee's rate was offered."""

    @property
    def points(self) -> Sequence[Point]:
        return [*self.rising, *self.past.values()]

    @property
    def knee(self) -> Point | None:
        return knee(self.rising)

    @property
    def model(self) -> Model:
        return Model(self.seconds, os.cpu_count() or 1, PLACES)

    def predicted(self) -> Point | None:
        """The knee of the model, asked at rates up to what it can do at most."""
        return knee([self.simulated(self.model.most * share) for share in SHARES])

    def simulated(self, rate: float) -> Point:
        seconds = lasting(rate)
        return Point(self.model.samples(poisson(rate, seconds, SEED), exponential(SEED)), seconds)


def lasting(rate: float) -> float:
    """Seconds."""
    return max(SECONDS, FEWEST / rate)
