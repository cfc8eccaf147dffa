"""Arrivals, what is made of their samples, the knee's rule and the simulation, against what is known by hand."""

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
"""Of a queue that is busy eight tenths of the time."""
MANY = poisson(RATE, 2_000, 1)


def point(rate: int, latency: float, *, refused: int = 0, late: float = 0.0) -> Point:
    """Requests of ten seconds that all take as long."""
    due = [number / rate for number in range(10 * rate)]
    samples = [
        Sample(at, at + late, at + latency, "refused" if number < refused else "completed")
        for number, at in enumerate(due)
    ]
    return Point(samples, 10.0)


def queue(places: int = 10**9) -> Model:
    return Model({"desk": MEAN}, cores=1, places=places, way=("desk",))


def mean(samples: Sequence[Sample]) -> float:
    return statistics.fmean(sample.latency for sample in samples)


def test_arrivals_are_as_many_as_asked_for_and_know_nothing_of_one_another() -> None:
    gaps = [after - before for before, after in pairwise(MANY)]
    assert len(MANY) == pytest.approx(RATE * 2_000, rel=0.01)
    assert statistics.stdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.02)
    assert MANY[-1] < 2_000


def test_the_same_seed_gives_the_same_arrivals() -> None:
    assert poisson(RATE, 5, 7) == poisson(RATE, 5, 7) != poisson(RATE, 5, 8)


def test_quantiles_are_values_that_were_there() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [quantile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert quantile([3.0], 0.01) == 3.0
    assert math.isnan(quantile([], 0.5))


def test_latency_counts_from_when_a_request_was_due() -> None:
    assert Sample(due=1.0, sent=1.5, ended=2.0).latency == 1.0


def test_goodput_is_the_pace_at_which_runs_are_completed() -> None:
    assert point(10, 0.1).goodput == point(10, 10.0).goodput == pytest.approx(10.0)
    assert point(10, 0.1, refused=50).goodput == pytest.approx(5.0)
    drained = Point([Sample(0.0, 0.0, float(number)) for number in range(21)], 10.0)
    assert drained.goodput == pytest.approx(1.05)


def test_a_rate_is_valid_only_if_requests_were_sent_in_time() -> None:
    assert point(10, 0.1).valid
    assert not point(10, 0.1, late=0.1).valid


def test_the_knee_is_the_highest_rate_within_both_bounds() -> None:
    unloaded, loaded, slow = point(10, 0.1), point(20, 0.4), point(40, 0.6)
    assert knee([unloaded, loaded, slow]) is loaded
    assert knee([unloaded, point(30, 0.1, refused=100)]) is unloaded


def test_a_rate_that_was_not_offered_as_it_should_be_is_no_knee() -> None:
    unloaded, late = point(10, 0.1), point(20, 0.2, late=0.1)
    assert knee([unloaded, late]) is unloaded
    assert knee([point(10, 0.1, late=0.1), point(20, 0.2)]) is None


def test_a_house_can_do_what_its_cores_can_and_its_busiest_room() -> None:
    assert Model({"one": 0.01, "two": 0.03}, cores=1, places=1, way=("one", "two")).most == pytest.approx(25)
    assert Model({"one": 0.01, "two": 0.03}, cores=2, places=1, way=("one", "two")).most == pytest.approx(1 / 0.03)


def test_there_is_no_knee_where_even_the_lowest_rate_breaks_a_bound() -> None:
    assert knee([point(10, 0.1, refused=50)]) is None


def test_one_desk_with_times_of_no_memory_is_the_queue_of_the_books() -> None:
    samples = queue().samples(MANY, exponential(2))
    assert mean(samples) == pytest.approx(MEAN / (1 - RATE * MEAN), rel=0.1)
    assert Point(samples, 2_000).latency(0.99) == pytest.approx(math.log(100) * MEAN / (1 - RATE * MEAN), rel=0.15)


def test_one_desk_that_always_takes_as_long_makes_half_as_many_wait() -> None:
    busy = RATE * MEAN
    samples = queue().samples(MANY, lambda seconds: seconds)
    assert mean(samples) == pytest.approx(MEAN + busy * MEAN / (2 * (1 - busy)), rel=0.05)


def test_rooms_share_the_cores() -> None:
    rooms = {"one": MEAN, "two": MEAN}
    both = [Model(rooms, cores, places=10**9, way=("one", "two")) for cores in (1, 2)]
    scarce, enough = (Point(model.samples(poisson(90, 100, 1), exponential(2)), 100) for model in both)
    assert scarce.goodput == pytest.approx(50, rel=0.05)
    assert enough.goodput == pytest.approx(enough.offered, rel=0.05)


def test_who_comes_while_all_places_are_taken_is_refused() -> None:
    samples = queue(places=1).samples([0.0, 0.001, 0.02], lambda seconds: seconds)
    assert {sample.due: sample.ending for sample in samples} == {0.0: "completed", 0.001: "refused", 0.02: "completed"}
