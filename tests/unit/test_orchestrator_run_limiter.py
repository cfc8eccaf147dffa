"""Slots of runs: their limit, their fair share between tenants, and the memory of runs."""

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from protos.hugginggpt.run_state import RunFold
from services.common.errors import Overloaded
from services.orchestrator.runs.run_limiter import MAX_WRITE_SECONDS, WAITING_SECONDS, RunLimiter
from tests.support.clock import Clock


def active(**tenants: int) -> dict[str, Any]:
    """So many active runs by tenant, of 100 bytes each."""
    return {
        f"{tenant}-{number}": SimpleNamespace(caller=SimpleNamespace(tenant=tenant), bytes=100, fold=RunFold())
        for tenant, count in tenants.items()
        for number in range(count)
    }


def test_slot_is_held_while_a_run_is_accepted() -> None:
    limiter = RunLimiter({}, max_runs=1, max_bytes=1000)
    with limiter.admit("a", 1):
        assert limiter.free_slots == 0
    assert limiter.free_slots == 1


def test_run_without_free_slot_is_refused_with_a_time_to_retry() -> None:
    limiter = RunLimiter({}, max_runs=1, max_bytes=1000)
    with limiter.admit("a", 1), pytest.raises(Overloaded) as caught, limiter.admit("a", 1):
        pass
    assert caught.value.retry_after
    with limiter.admit("a", 1):
        pass


def test_only_tenant_may_use_all_slots() -> None:
    limiter = RunLimiter(active(a=9), max_runs=10, max_bytes=10_000)
    with limiter.admit("a", 1):
        pass


def test_tenant_with_more_than_its_share_is_refused_while_another_waits() -> None:
    clock, runs = Clock(), active(a=10)
    limiter = RunLimiter(runs, max_runs=10, max_bytes=10_000, clock=clock)
    with pytest.raises(Overloaded, match="10 runs"), limiter.admit("b", 1):
        pass
    runs.popitem()
    with pytest.raises(Overloaded, match="share"), limiter.admit("a", 1):
        pass
    with limiter.admit("b", 1):
        pass
    clock.now += WAITING_SECONDS + 1
    with limiter.admit("a", 1):
        pass


def test_batch_items_leave_memory_for_interactive_runs() -> None:
    runs = active(a=7)
    limiter = RunLimiter(runs, max_runs=10, max_bytes=1000)
    assert not limiter.is_memory_low()
    runs |= active(b=1)
    assert limiter.is_memory_low()
    with limiter.admit("a", 200):
        pass


def test_run_beyond_the_memory_is_refused() -> None:
    limiter = RunLimiter(active(a=5), max_runs=10, max_bytes=600)
    with limiter.admit("a", 100):
        pass
    with pytest.raises(Overloaded, match="memory"), limiter.admit("a", 101):
        pass


def test_runs_accepted_at_once_do_not_exceed_the_slots() -> None:
    limiter = RunLimiter({}, max_runs=3, max_bytes=1000)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(limiter.admit("a", 1))
        with pytest.raises(Overloaded), limiter.admit("a", 1):
            pass


async def test_run_is_refused_while_an_earlier_one_waits_long_for_its_journal_write() -> None:
    clock = Clock()
    limiter = RunLimiter({}, max_runs=3, max_bytes=1000, clock=clock)
    write = limiter.track_write(asyncio.get_running_loop().create_future())
    clock.now += MAX_WRITE_SECONDS + 1
    with pytest.raises(Overloaded, match="too slow") as caught, limiter.admit("a", 1):
        pass
    assert caught.value.retry_after
    write.set_result("run")
    await limiter.wait_written()
    await asyncio.sleep(0)  # the callback of the write
    with limiter.admit("a", 1):
        pass
