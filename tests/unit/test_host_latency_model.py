from math import inf

import pytest

from experts.host.latency_model import Pace


def learnt(*batches: tuple[float, float]) -> Pace:
    pace = Pace()
    for cost, seconds in batches:
        pace.learn(cost, seconds)
    return pace


def test_nothing_is_promised_before_a_batch_has_run() -> None:
    assert (Pace().seconds(1), Pace().known) == (inf, False)


def test_what_any_batch_takes_is_told_from_what_an_item_takes() -> None:
    pace = learnt((1, 0.011), (8, 0.018), (4, 0.014), (16, 0.026))
    assert pace.known
    assert pace.seconds(2) == pytest.approx(0.012)
    assert pace.seconds(12) == pytest.approx(0.022)


def test_beyond_what_has_run_time_grows_as_cost_does() -> None:
    assert learnt((1, 0.011), (8, 0.018)).seconds(16) == pytest.approx(0.036, rel=0.2)


def test_batches_that_are_all_alike_say_only_what_they_took() -> None:
    pace = learnt((4, 0.02), (4, 0.02))
    assert not pace.known
    assert (pace.seconds(2), pace.seconds(4), pace.seconds(8)) == pytest.approx((0.01, 0.02, 0.04))


def test_noise_never_makes_a_larger_batch_the_quicker_or_any_take_less_than_nothing() -> None:
    upside_down, steep = learnt((1, 0.03), (4, 0.01)), learnt((4, 0.01), (5, 0.05))
    assert upside_down.seconds(1) <= upside_down.seconds(3)
    assert steep.seconds(0.1) >= 0


def test_the_latest_batches_count_most() -> None:
    pace = learnt(*[(1, 1.0)] * 50, *[(1, 0.01)] * 100)
    assert pace.seconds(1) == pytest.approx(0.01, rel=0.7)


def test_items_that_cost_nothing_take_what_they_took() -> None:
    assert learnt((0, 0.01), (0, 0.01)).seconds(0) == pytest.approx(0.01)
