"""Who gets a place for a run where places are short."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from protos.hugginggpt.run_state import RunFold
from services.common.errors import Overloaded
from services.orchestrator.runs.admission import MAX_PENDING_SECONDS, WAITING_SECONDS, Admission
from tests.support.clock import Clock


def live(**tenants: int) -> dict[str, Any]:
    """So many runs under way, by tenant."""
    return {
        f"{tenant}-{number}": SimpleNamespace(caller=SimpleNamespace(tenant=tenant), bytes=100, fold=RunFold())
        for tenant, count in tenants.items()
        for number in range(count)
    }


def test_places_are_free_again_once_acceptance_is_over() -> None:
    admission = Admission({}, max_runs=1, max_bytes=1000)
    with admission.admit("a", 1), pytest.raises(Overloaded) as caught, admission.admit("a", 1):
        pass
    assert caught.value.retry_after
    with admission.admit("a", 1):
        assert admission.free_slots == 0
    assert admission.free_slots == 1


def test_one_tenant_alone_may_have_all_places() -> None:
    admission = Admission(live(a=9), max_runs=10, max_bytes=10_000)
    with admission.admit("a", 1):
        pass


def test_who_has_more_than_a_share_lets_others_go_first() -> None:
    clock, runs = Clock(), live(a=10)
    admission = Admission(runs, max_runs=10, max_bytes=10_000, clock=clock)
    with pytest.raises(Overloaded, match="10 runs"), admission.admit("b", 1):
        pass
    runs.popitem()
    with pytest.raises(Overloaded, match="share"), admission.admit("a", 1):
        pass
    with admission.admit("b", 1):
        pass
    clock.now += WAITING_SECONDS + 1
    with admission.admit("a", 1):
        pass


def test_items_of_batches_leave_memory_for_people() -> None:
    runs = live(a=7)
    admission = Admission(runs, max_runs=10, max_bytes=1000)
    assert not admission.is_memory_low
    runs |= live(b=1)
    assert admission.is_memory_low
    with admission.admit("a", 200):
        pass


def test_memory_is_a_limit_of_its_own() -> None:
    admission = Admission(live(a=5), max_runs=10, max_bytes=600)
    with admission.admit("a", 100):
        pass
    with pytest.raises(Overloaded, match="memory"), admission.admit("a", 101):
        pass


def test_no_more_are_let_in_at_once_than_there_are_places() -> None:
    admission = Admission({}, max_runs=3, max_bytes=1000)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(admission.admit("a", 1))
        with pytest.raises(Overloaded), admission.admit("a", 1):
            pass


def test_none_is_let_in_to_wait_where_runs_are_kept_too_slowly() -> None:
    behind = MAX_PENDING_SECONDS + 1
    admission = Admission({}, max_runs=3, max_bytes=1000, pending_seconds=lambda: behind)
    with pytest.raises(Overloaded, match="too slow") as caught, admission.admit("a", 1):
        pass
    assert caught.value.retry_after
    behind = 0.0
    with admission.admit("a", 1):
        pass
