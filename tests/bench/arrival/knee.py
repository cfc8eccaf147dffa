"""Up to which rate a house keeps its promise."""

from collections.abc import Sequence

from tests.bench.arrival.samples import Point

SLOWER = 5.0
"""So many times its 99th percentile without load may a house's 99th percentile be."""
GOOD = 0.98
"""So large a share of what is offered is to be completed meanwhile."""


def knee(points: Sequence[Point]) -> Point | None:
    """The point of the highest rate that is valid and holds both bounds; None where the first is not or does not.

    Args:
        points: by rising rate; the first is of a rate that is no load.
    """
    unloaded = points[0].latency(0.99)
    holding = [point for point in points if point.valid and _holds(point, unloaded)]
    return max(holding, key=lambda point: point.offered) if points[0] in holding else None


def _holds(point: Point, unloaded: float) -> bool:
    return point.latency(0.99) <= SLOWER * unloaded and point.goodput >= GOOD * point.offered
