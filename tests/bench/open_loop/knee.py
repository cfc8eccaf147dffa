"""Up to which rate a house keeps its promise."""

from collections.abc import Sequence

from tests.bench.open_loop.samples import Point

LONGEST_SECONDS = 0.5
"""So long may a house's 99th percentile be. A bound in times of the one without load moved by half between two runs of
the same code, since that one rests on a moment of a shared machine; and a model's is another than its house's."""
GOOD = 0.98
"""So large a share of what is offered is to be completed meanwhile."""


def knee(points: Sequence[Point]) -> Point | None:
    """The point of the highest rate that is valid and holds both bounds; None where the first is not or does not.

    Args:
        points: by rising rate; the first is of a rate that is no load.
    """
    holding = [point for point in points if point.valid and _holds(point)]
    return max(holding, key=lambda point: point.offered) if points[0] in holding else None


def _holds(point: Point) -> bool:
    return point.latency(0.99) <= LONGEST_SECONDS and point.goodput >= GOOD * point.offered
