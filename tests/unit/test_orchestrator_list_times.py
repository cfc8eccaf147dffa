"""Times in lists: converted to timestamps and back, they include their row."""

import math

import pytest

from services.orchestrator.journal.store import to_timestamp
from services.orchestrator.servicer import to_seconds


@pytest.mark.parametrize("second", [0.0, 1.0, 1_795_371_073.0, 4_102_444_799.0])
def test_time_of_a_row_includes_the_row_after_conversion(second: float) -> None:
    stored = second
    for _ in range(1_000):
        converted = to_seconds(to_timestamp(stored), "ended_after")
        assert stored - 2e-6 < converted <= stored
        stored = math.nextafter(stored, math.inf)


def test_microseconds_of_a_database_include_the_row_after_conversion() -> None:
    for microsecond in range(1_795_371_073_000_000, 1_795_371_073_001_000):
        stored = microsecond / 1e6
        assert to_seconds(to_timestamp(stored), "ended_after") <= stored
