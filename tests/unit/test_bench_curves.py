"""Curves through points that are known to lie on one."""

import pytest

from tests.bench.curves import Curve, fit

DOUBLED = [(float(size), 2.0 * size) for size in (1, 10, 100)]
SQUARED = [(float(size), 3.0 * size**2) for size in (1, 10, 100)]
STARTED = [(float(size), 5.0 + 0.1 * size) for size in (1, 10, 100, 1_000)]


def test_what_grows_in_proportion_has_the_exponent_one_and_starts_at_nothing() -> None:
    found = fit(DOUBLED)
    assert (found.factor, found.exponent) == pytest.approx((2, 1))
    assert (found.start, found.slope) == pytest.approx((0, 2))


def test_what_grows_with_the_square_has_the_exponent_two() -> None:
    found = fit(SQUARED)
    assert (found.factor, found.exponent) == pytest.approx((3, 2))


def test_what_each_costs_beside_a_fixed_cost_is_told_by_the_line() -> None:
    found = fit(STARTED)
    assert (found.start, found.slope) == pytest.approx((5, 0.1))
    assert 0 < found.exponent < 1


def test_a_cost_of_nothing_and_one_size_alone_are_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        fit([(1, 0), (2, 1)])
    with pytest.raises(ValueError, match="two sizes"):
        fit([(2, 1), (2, 3)])


def test_each_series_has_a_row_that_says_whether_it_grows_too_quickly() -> None:
    curve = Curve("scale.tasks", "Tasks", "tasks", "ms", {"chain": DOUBLED, "wide": SQUARED})
    rows = {row.id: row for row in curve.exponents(1.1)}
    assert rows["scale.tasks_chain_exponent"].verdict == "met"
    assert rows["scale.tasks_wide_exponent"].verdict == "missed"
    assert rows["scale.tasks_wide_exponent"].value == pytest.approx(2)


def test_a_curve_with_a_knee_is_not_fitted() -> None:
    curve = Curve("load.latency", "Latency", "runs/s", "ms", {"p50": [(1, 0), (2, 5)]}, fitted=False)
    assert not curve.fits
    assert not curve.exponents(1.0)
