"""The knee: the highest rate at which latency and goodput stay within their bounds."""

from collections.abc import Sequence

from tests.bench.open_loop.samples import Point

LONGEST_SECONDS = 0.5
"""Bound of the 99th percentile. It is absolute: a multiple of the unloaded latency varied by half between two runs of
the same code on a shared machine, and the simulation's unloaded latency differs from the measured one."""
COMPLETED_SHARE = 0.98
"""Lower bound of goodput over the offered rate."""


def knee(points: Sequence[Point]) -> Point | None:
    """The valid point of the highest rate within both bounds; None if the first point is not.

    Args:
        points: by rising rate; the first is practically without load.
    """
    within = [point for point in points if point.valid and _is_within_bounds(point)]
    return max(within, key=lambda point: point.offered) if points[0] in within else None


def _is_within_bounds(point: Point) -> bool:
    return point.latency(0.99) <= LONGEST_SECONDS and point.goodput >= COMPLETED_SHARE * point.offered
