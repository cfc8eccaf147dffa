"""When requests come that know nothing of one another."""

import random
from collections.abc import Sequence


def poisson(rate: float, seconds: float, seed: int) -> Sequence[float]:
    """Moments in seconds from the beginning, so many a second in the mean; the same seed gives the same."""
    chance, moments, now = random.Random(seed), list[float](), 0.0
    while (now := now + chance.expovariate(rate)) < seconds:
        moments.append(now)
    return moments
