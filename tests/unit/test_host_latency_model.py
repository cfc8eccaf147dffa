"""Latencies: percentiles, stopwatch and predictions."""

from math import inf

import pytest

from experts.host.latency_model import WINDOW, LatencyModel, LatencyStats


def test_percentiles_are_zero_before_the_first_call() -> None:
    assert LatencyStats().p50 == 0
    assert LatencyStats().p95 == 0


def test_percentiles_cover_only_the_latest_calls() -> None:
    latency = LatencyStats()
    for _ in range(WINDOW):
        latency.add(100)
    for number in range(WINDOW):
        latency.add(1 if number < 90 else 10)
    assert latency.p50 == 1
    assert latency.p95 == 10


def test_small_changes_are_not_published() -> None:
    latency = LatencyStats()
    latency.add(1.0)
    latency.add(1.2)
    latency.add(1.2)
    assert latency.p50 == 1.0
    assert latency.p95 == 1.0
    latency.add(1.3)
    assert latency.p95 == 1.3


def fitted(*batches: tuple[float, float]) -> LatencyModel:
    latency_model = LatencyModel()
    for cost, seconds in batches:
        latency_model.observe(cost, seconds)
    return latency_model


def test_prediction_is_infinite_before_the_first_batch() -> None:
    assert LatencyModel().predict(1) == inf
    assert LatencyModel().fixed_cost == inf


def test_prediction_interpolates_between_observed_costs() -> None:
    latency_model = fitted((1, 0.011), (8, 0.018), (4, 0.014), (16, 0.026))
    assert latency_model.predict(2) == pytest.approx(0.012)
    assert latency_model.predict(12) == pytest.approx(0.022)


def test_fixed_cost_takes_the_fixed_seconds_of_a_batch() -> None:
    assert fitted((1, 0.011), (8, 0.018), (4, 0.014), (16, 0.026)).fixed_cost == pytest.approx(10)


def test_fixed_cost_is_infinite_if_time_does_not_grow_with_cost() -> None:
    assert fitted((1, 0.01), (8, 0.01)).fixed_cost == inf


@pytest.mark.parametrize("batches", [[(100, 0.2)], [(100, 0.2), (100, 0.21)], [(104, 0.2), (96, 0.21)]])
def test_fixed_cost_is_a_quarter_of_the_mean_while_costs_are_similar(batches: list[tuple[float, float]]) -> None:
    assert fitted(*batches).fixed_cost == pytest.approx(25, rel=0.01)


def test_prediction_above_observed_costs_grows_with_cost() -> None:
    assert fitted((1, 0.011), (8, 0.018)).predict(16) == pytest.approx(0.036, rel=0.2)


def test_equal_costs_give_a_proportional_prediction() -> None:
    latency_model = fitted((4, 0.02), (4, 0.02))
    assert (latency_model.predict(2), latency_model.predict(4), latency_model.predict(8)) == pytest.approx(
        (0.01, 0.02, 0.04)
    )


def test_noise_gives_neither_negative_slope_nor_negative_prediction() -> None:
    upside_down, steep = fitted((1, 0.03), (4, 0.01)), fitted((4, 0.01), (5, 0.05))
    assert upside_down.predict(1) <= upside_down.predict(3)
    assert steep.predict(0.1) >= 0


def test_recent_batches_have_more_weight() -> None:
    latency_model = fitted(*[(1, 1.0)] * 50, *[(1, 0.01)] * 100)
    assert latency_model.predict(1) == pytest.approx(0.01, rel=0.7)


def test_zero_costs_predict_the_mean_duration() -> None:
    assert fitted((0, 0.01), (0, 0.01)).predict(0) == pytest.approx(0.01)
