"""Arrival schedules, statistics of samples, the knee and the simulation, checked against known results."""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.bench.open_loop.knee import knee
from tests.bench.open_loop.samples import Point, Sample
from tests.bench.open_loop.schedule import poisson
from tests.bench.open_loop.simulation import Model, exponential
from tests.bench.rows import quantile

RATE, MEAN = 80.0, 0.01
"""Rate and mean service time of a queue with 80 % utilization."""
MANY = poisson(RATE, 2_000, 1)


def point(rate: int, latency: float, *, refused: int = 0, late: float = 0.0) -> Point:
    """A point of ten seconds in which all requests have the same latency."""
    due = [number / rate for number in range(10 * rate)]
    samples = [
        Sample(at, at + late, at + latency, "refused" if number < refused else "completed")
        for number, at in enumerate(due)
    ]
    return Point(samples, 10.0)


def queue(max_runs: int = 10**9) -> Model:
    """A model with one station."""
    return Model({"station": MEAN}, cores=1, max_runs=max_runs, route=("station",))


def mean(samples: Sequence[Sample]) -> float:
    return statistics.fmean(sample.latency for sample in samples)


def test_poisson_arrivals_have_the_rate_and_exponential_gaps() -> None:
    gaps = [after - before for before, after in pairwise(MANY)]
    assert len(MANY) == pytest.approx(RATE * 2_000, rel=0.01)
    assert statistics.stdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.02)
    assert MANY[-1] < 2_000


def test_equal_seeds_give_equal_arrivals() -> None:
    assert poisson(RATE, 5, 7) == poisson(RATE, 5, 7)
    assert poisson(RATE, 5, 7) != poisson(RATE, 5, 8)


def test_quantiles_are_measured_values() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [quantile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert quantile([3.0], 0.01) == 3.0
    assert math.isnan(quantile([], 0.5))


def test_latency_starts_at_the_scheduled_time() -> None:
    assert Sample(due=1.0, sent=1.5, ended=2.0).latency == 1.0


def test_goodput_is_the_rate_of_completions() -> None:
    assert point(10, 0.1).goodput == pytest.approx(10.0)
    assert point(10, 10.0).goodput == pytest.approx(10.0)
    assert point(10, 0.1, refused=50).goodput == pytest.approx(5.0)
    drained = Point([Sample(0.0, 0.0, float(number)) for number in range(21)], 10.0)
    assert drained.goodput == pytest.approx(1.05)


def test_point_is_valid_if_requests_were_sent_on_schedule() -> None:
    assert point(10, 0.1).valid
    assert not point(10, 0.1, late=0.1).valid


def test_the_knee_is_the_highest_rate_within_both_bounds() -> None:
    unloaded, loaded, slow = point(10, 0.1), point(20, 0.4), point(40, 0.6)
    assert knee([unloaded, loaded, slow]) is loaded
    assert knee([unloaded, point(30, 0.1, refused=100)]) is unloaded


def test_the_knee_is_a_valid_point() -> None:
    unloaded, late = point(10, 0.1), point(20, 0.2, late=0.1)
    assert knee([unloaded, late]) is unloaded
    assert knee([point(10, 0.1, late=0.1), point(20, 0.2)]) is None


@pytest.mark.parametrize(("cores", "rate"), [(1, 25), (2, 1 / 0.03)])
def test_max_rate_is_limited_by_the_cores_and_the_busiest_station(cores: int, rate: float) -> None:
    model = Model({"one": 0.01, "two": 0.03}, cores=cores, max_runs=1, route=("one", "two"))
    assert model.max_rate == pytest.approx(rate)


def test_there_is_no_knee_if_the_lowest_rate_exceeds_a_bound() -> None:
    assert knee([point(10, 0.1, refused=50)]) is None


def test_one_station_with_exponential_times_is_an_m_m_1_queue() -> None:
    samples = queue().samples(MANY, exponential(2))
    assert mean(samples) == pytest.approx(MEAN / (1 - RATE * MEAN), rel=0.1)
    assert Point(samples, 2_000).latency(0.99) == pytest.approx(math.log(100) * MEAN / (1 - RATE * MEAN), rel=0.15)


def test_one_station_with_constant_times_is_an_m_d_1_queue() -> None:
    busy = RATE * MEAN
    samples = queue().samples(MANY, lambda seconds: seconds)
    assert mean(samples) == pytest.approx(MEAN + busy * MEAN / (2 * (1 - busy)), rel=0.05)


def test_stations_share_the_cores() -> None:
    stations = {"one": MEAN, "two": MEAN}
    both = [Model(stations, cores, max_runs=10**9, route=("one", "two")) for cores in (1, 2)]
    scarce, enough = (Point(model.samples(poisson(90, 100, 1), exponential(2)), 100) for model in both)
    assert scarce.goodput == pytest.approx(50, rel=0.05)
    assert enough.goodput == pytest.approx(enough.offered, rel=0.05)


def test_arrivals_above_max_runs_are_refused() -> None:
    samples = queue(max_runs=1).samples([0.0, 0.001, 0.02], lambda seconds: seconds)
    assert {sample.due: sample.ending for sample in samples} == {0.0: "completed", 0.001: "refused", 0.02: "completed"}
