"""Schedules of requests that arrive independently of each other."""

import random
from collections.abc import Sequence


def poisson(rate: float, seconds: float, seed: int) -> Sequence[float]:
    """Arrival times of a Poisson process, in seconds from the start.

    Args:
        rate: mean arrivals per second.
        seconds: duration.
        seed: equal seeds give equal schedules.
    """
    rng, moments, now = random.Random(seed), list[float](), 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        moments.append(now)
    return moments
