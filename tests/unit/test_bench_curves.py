"""Fits of points that lie on a known curve."""

import pytest

from tests.bench.curves import Curve, fit

DOUBLED = [(float(size), 2.0 * size) for size in (1, 10, 100)]
SQUARED = [(float(size), 3.0 * size**2) for size in (1, 10, 100)]
STARTED = [(float(size), 5.0 + 0.1 * size) for size in (1, 10, 100, 1_000)]


def test_proportional_growth_has_exponent_one_and_no_intercept() -> None:
    found = fit(DOUBLED)
    assert found.factor == pytest.approx(2)
    assert found.exponent == pytest.approx(1)
    assert found.start == pytest.approx(0)
    assert found.slope == pytest.approx(2)


def test_quadratic_growth_has_exponent_two() -> None:
    found = fit(SQUARED)
    assert found.factor == pytest.approx(3)
    assert found.exponent == pytest.approx(2)


def test_line_separates_fixed_and_marginal_cost() -> None:
    found = fit(STARTED)
    assert found.start == pytest.approx(5)
    assert found.slope == pytest.approx(0.1)
    assert 0 < found.exponent < 1


def test_fit_needs_positive_values_and_two_sizes() -> None:
    with pytest.raises(ValueError, match="above zero"):
        fit([(1, 0), (2, 1)])
    with pytest.raises(ValueError, match="two sizes"):
        fit([(2, 1), (2, 3)])


def test_each_series_has_a_row_with_its_exponent() -> None:
    curve = Curve("scale.tasks", "Tasks", "tasks", "ms", {"chain": DOUBLED, "wide": SQUARED})
    rows = {row.id: row for row in curve.exponents(1.1)}
    assert rows["scale.tasks_chain_exponent"].verdict == "met"
    assert rows["scale.tasks_wide_exponent"].verdict == "missed"
    assert rows["scale.tasks_wide_exponent"].value == pytest.approx(2)


def test_curve_with_fitted_false_has_no_fits() -> None:
    curve = Curve("load.latency", "Latency", "runs/s", "ms", {"p50": [(1, 0), (2, 5)]}, fitted=False)
    assert not curve.fits
    assert not curve.exponents(1.0)
