from experts.host.timing import WINDOW, LatencyStats


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
