"""Deadlines are measured on the monotonic clock."""

import math
import time

import pytest

from services.orchestrator.deadline import Deadline
from tests.support.clock import Clock


def test_seconds_left_follow_the_monotonic_clock() -> None:
    clock = Clock(100.0)
    deadline = Deadline(10.0, clock)
    clock.now += 4.0
    assert deadline.left == 6.0
    clock.now += 10.0
    assert deadline.left == -4.0


@pytest.mark.parametrize("seconds", [3600.0, -3600.0], ids=["forward", "back"])
def test_deadline_stays_when_the_wall_clock_jumps(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time()
    deadline = Deadline.at(now + 100.0)
    monkeypatch.setattr(time, "time", lambda: now + seconds)
    assert deadline.left == pytest.approx(100.0, abs=20.0)


def test_sooner_is_the_earlier_of_two_deadlines() -> None:
    clock = Clock()
    deadline = Deadline(10.0, clock)
    assert deadline.sooner(4.0).left == 4.0
    assert deadline.sooner(40.0).left == 10.0


def test_deadline_may_be_infinite() -> None:
    assert Deadline(math.inf).left == math.inf
