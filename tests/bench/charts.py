"""Charts of curves as SVG and PNG, identical to the byte for identical data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import log10
from pathlib import Path
from typing import Any

from tests.bench.curves import Curve, Fit, Point

DECADES = 1.5
"""An axis whose values span more is logarithmic; the x axis only if a fit is drawn."""
INK = "#7d8590"
"""Legible on white and on black."""
COLOURS = ("#2f81f7", "#db6d28", "#2da44e", "#a371f7", "#d6409f", "#9a8700")
STYLE: dict[str, Any] = {
    "svg.hashsalt": "hugginggpt",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
INCHES, DOTS = (6.4, 3.4), 110
FIT_POINTS = 60
"""Number of points of a fitted curve; series with more points are drawn without markers."""


def draw(curves: Sequence[Curve], folder: Path) -> None:
    """Writes each curve as ID.svg and ID.png with a transparent background.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for curve in curves:
        with _figure() as (figure, axes):
            _plot(curve, axes)
            figure.savefig(folder / f"{curve.id}.svg", transparent=True, metadata={"Date": None, "Creator": None})
            figure.savefig(folder / f"{curve.id}.png", transparent=True, dpi=DOTS, metadata={"Software": None})


@contextmanager
def _figure() -> Iterator[tuple[Any, Any]]:
    import matplotlib as mpl  # noqa: PLC0415  # an optional dependency
    from matplotlib.figure import Figure  # noqa: PLC0415  # likewise

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=INCHES, layout="constrained")
        yield figure, figure.add_subplot()


def _plot(curve: Curve, axes: Any) -> None:
    for colour, (name, points) in zip(COLOURS * 2, curve.series.items(), strict=False):
        found = curve.fits.get(name)
        label = (
            f"{name}: ∝ x^{found.exponent:.2f}; dashed: {found.start:.3g} + {found.slope:.2g} · x" if found else name
        )
        style = "o" if found else "o-" if len(points) <= FIT_POINTS else "-"
        axes.plot(*zip(*points, strict=True), style, color=colour, markersize=4, label=label)
        if found:
            power, line = zip(*_power(found, points), strict=True), zip(*_line(found, points), strict=True)
            axes.plot(*power, "-", color=colour, linewidth=1, alpha=0.7)
            axes.plot(*line, "--", color=colour, linewidth=1, alpha=0.5)
    axes.set(xlabel=curve.x, ylabel=curve.y)
    axes.set_title(curve.title, fontsize=10)
    all_points = [point for points in curve.series.values() for point in points]
    axes.set_xscale(_scale([x for x, _ in all_points]) if curve.fits else "linear")
    axes.set_yscale(_scale([y for _, y in all_points]))
    axes.grid(visible=True, which="major", color=INK, alpha=0.25, linewidth=0.6)
    axes.legend(frameon=False, fontsize=8)


def _power(found: Fit, points: Sequence[Point]) -> list[Point]:
    return [(size, found.factor * size**found.exponent) for size in _sizes(points)]


def _line(found: Fit, points: Sequence[Point]) -> list[Point]:
    """The part of the fitted line that is not far below the lowest point."""
    lowest = min(y for _, y in points) / 2
    line = [(size, found.start + found.slope * size) for size in _sizes(points)]
    return [(size, y) for size, y in line if y >= lowest]


def _sizes(points: Sequence[Point]) -> list[float]:
    first, last = points[0][0], points[-1][0]
    return [first * (last / first) ** (step / FIT_POINTS) for step in range(FIT_POINTS + 1)]


def _scale(values: Sequence[float]) -> str:
    return "log" if min(values) > 0 and log10(max(values) / min(values)) > DECADES else "linear"
