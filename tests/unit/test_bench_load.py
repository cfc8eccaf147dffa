"""Rates that the benchmark's load generators measure, on a scripted clock."""

import asyncio
import time

import pytest

from tests.bench import load
from tests.support.clock import Clock


async def test_steady_rate_excludes_the_first_call_of_each_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = Clock(), 0
    monkeypatch.setattr(time, "perf_counter", clock)

    async def call() -> None:
        nonlocal calls
        calls += 1
        clock.now += 100.0 if calls <= 4 else 0.5
        await asyncio.sleep(0)

    assert await load.steady_rate(call, callers=4, count=10) == pytest.approx(2)
