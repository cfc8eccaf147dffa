"""What something costs as it grows: points, and the curves that lie closest to them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.rows import Row

Point = tuple[float, float]


@dataclass(frozen=True)
class Fit:
    """Two curves through the same points: y = factor · x^exponent, and y = start + slope · x."""

    factor: float
    exponent: float
    start: float
    slope: float


@dataclass(frozen=True)
class Curve:
    """A cost over a size, for one thing or several."""

    id: str
    """Dotted lower case, such as scale.tasks."""
    title: str
    x: str
    """What the size is, with its unit."""
    y: str
    """What the cost is, with its unit."""
    series: Mapping[str, Sequence[Point]]
    """Points in the order of their size, by what was measured."""
    fitted: bool = True
    """Whether a fit says something: not of a latency that has a knee."""

    @property
    def fits(self) -> Mapping[str, Fit]:
        return {name: fit(points) for name, points in self.series.items()} if self.fitted else {}

    def exponents(self, target: float) -> list[Row]:
        """A row for each series: with which power of the size its cost grows; 1 is in proportion, 0 not at all."""
        return [self._exponent(name, found, target) for name, found in self.fits.items()]

    def _exponent(self, name: str, found: Fit, target: float) -> Row:
        note = f"{self.y} grows with this power of: {self.x}; in a line {found.start:.3g} + {found.slope:.3g} each"
        return Row(f"{self.id}_{name}_exponent", round(found.exponent, 3), "", target, note=note)


Measured = Row | Curve
"""What a section has measured."""


def fit(points: Sequence[Point]) -> Fit:
    """Least squares, of the logarithms for the power law.

    Raises:
        ValueError: a number is not above zero, or all sizes are the same.
    """
    if min(min(point) for point in points) <= 0:
        raise ValueError(f"a power law goes through numbers above zero only: {list(points)}")
    exponent, logarithm = _line([(math.log(x), math.log(y)) for x, y in points])
    slope, start = _line(points)
    return Fit(math.exp(logarithm), exponent, start, slope)


def _line(points: Sequence[Point]) -> tuple[float, float]:
    """Its slope, and where it starts."""
    across, up = (sum(column) / len(points) for column in zip(*points, strict=True))
    spread = sum((x - across) ** 2 for x, _ in points)
    if not spread:
        raise ValueError(f"a curve needs two sizes: {list(points)}")
    slope = sum((x - across) * (y - up) for x, y in points) / spread
    return slope, up - slope * across
