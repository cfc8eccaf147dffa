"""Cost as a function of size: measured points, and power laws and lines fitted to them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.rows import Row

Point = tuple[float, float]


@dataclass(frozen=True)
class Fit:
    """Two fits of the same points: y = factor · x^exponent, and y = start + slope · x."""

    factor: float
    exponent: float
    start: float
    slope: float


@dataclass(frozen=True)
class Curve:
    """Cost over size, for one series or several.

    Attributes:
        id: dotted lower case, such as scale.tasks.
        x: label of the size, with its unit.
        y: label of the cost, with its unit.
        series: points by rising size, by name.
        fitted: False where a fit is meaningless, such as for a latency with a knee.
    """

    id: str
    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[Point]]
    fitted: bool = True

    @property
    def fits(self) -> Mapping[str, Fit]:
        return {name: fit(points) for name, points in self.series.items()} if self.fitted else {}

    def exponents(self, target: float) -> list[Row]:
        """One row for each series: the exponent of the power law; 1 means proportional growth, 0 none."""
        return [self._exponent(name, found, target) for name, found in self.fits.items()]

    def _exponent(self, name: str, found: Fit, target: float) -> Row:
        note = f"{self.y} grows with this power of: {self.x}; as a line {found.start:.3g} + {found.slope:.3g} each"
        return Row(f"{self.id}_{name}_exponent", round(found.exponent, 3), "", target, note=note)


Measured = Row | Curve
"""A result of a section."""


def fit(points: Sequence[Point]) -> Fit:
    """Fits by least squares; for the power law, of the logarithms.

    Raises:
        ValueError: a number is not above zero, or all sizes are equal.
    """
    if min(min(point) for point in points) <= 0:
        raise ValueError(f"a power law needs numbers above zero: {list(points)}")
    exponent, logarithm = _line([(math.log(x), math.log(y)) for x, y in points])
    slope, start = _line(points)
    return Fit(math.exp(logarithm), exponent, start, slope)


def _line(points: Sequence[Point]) -> tuple[float, float]:
    """Slope and intercept of the least-squares line."""
    across, up = (sum(column) / len(points) for column in zip(*points, strict=True))
    spread = sum((x - across) ** 2 for x, _ in points)
    if not spread:
        raise ValueError(f"a fit needs two sizes: {list(points)}")
    slope = sum((x - across) * (y - up) for x, y in points) / spread
    return slope, up - slope * across
