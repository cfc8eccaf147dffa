"""Moments of lists, as they are told and asked for."""

import math

import pytest

from services.orchestrator.paging import moment, timestamp


@pytest.mark.parametrize("second", [0.0, 1.0, 1_795_371_073.0, 4_102_444_799.0])
def test_a_moment_that_was_told_finds_the_row_again(second: float) -> None:
    kept = second
    for _ in range(1_000):
        asked = moment(timestamp(kept), "ended_after")
        assert kept - 2e-6 < asked <= kept
        kept = math.nextafter(kept, math.inf)


def test_microseconds_of_a_database_find_the_row_again() -> None:
    for microsecond in range(1_795_371_073_000_000, 1_795_371_073_001_000):
        kept = microsecond / 1e6
        assert moment(timestamp(kept), "ended_after") <= kept
