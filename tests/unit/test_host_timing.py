from experts.host.timing import WINDOW, Times


def test_nothing_is_said_before_anything_was_measured() -> None:
    assert (Times().p50, Times().p95) == (0, 0)


def test_median_and_95th_percentile_are_of_the_latest_calls() -> None:
    times = Times()
    for _ in range(WINDOW):
        times.add(100)
    for number in range(WINDOW):
        times.add(1 if number < 90 else 10)
    assert (times.p50, times.p95) == (1, 10)


def test_small_changes_are_not_published() -> None:
    times = Times()
    times.add(1.0)
    times.add(1.2)
    times.add(1.2)
    assert (times.p50, times.p95) == (1.0, 1.0)
    times.add(1.3)
    assert times.p95 == 1.3
