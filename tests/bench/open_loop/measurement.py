"""Measurement of a deployment at rising rates, and the simulation of the same rates."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.open_loop.knee import knee
from tests.bench.open_loop.samples import Point
from tests.bench.open_loop.schedule import poisson
from tests.bench.open_loop.simulation import Model, exponential
from tests.bench.saturation import MAX_RUNS

SEED = 5
SHARES = (0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Rates, as shares of the closed-loop rate; the first is practically without load."""
SECONDS, FEWEST = 10.0, 150
"""Shortest duration of each rate, and smallest expected number of its requests."""


@dataclass(frozen=True)
class Measurement:
    """Results at all rates.

    Attributes:
        closed: closed-loop rate, in runs per second.
        seconds: core-seconds of each process per run, in the closed loop.
        rising: points of SHARES.
        past: points above the knee, by multiple of the knee's rate.
    """

    closed: float
    seconds: Mapping[str, float]
    rising: Sequence[Point]
    past: Mapping[float, Point]

    @property
    def points(self) -> Sequence[Point]:
        return [*self.rising, *self.past.values()]

    @property
    def knee(self) -> Point | None:
        return knee(self.rising)

    @property
    def model(self) -> Model:
        return Model(self.seconds, os.cpu_count() or 1, MAX_RUNS)

    def predicted(self) -> Point | None:
        """The knee of the simulation, at shares of its highest rate."""
        return knee([self.simulated(self.model.max_rate * share) for share in SHARES])

    def simulated(self, rate: float) -> Point:
        """The simulated point of a rate."""
        seconds = duration(rate)
        return Point(self.model.samples(poisson(rate, seconds, SEED), exponential(SEED)), seconds)


def duration(rate: float) -> float:
    """Seconds for which a rate is offered."""
    return max(SECONDS, FEWEST / rate)
