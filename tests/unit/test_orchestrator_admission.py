"""Who gets a place for a run where places are short."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from services.common.errors import Overloaded
from services.orchestrator.runs.admission import BEHIND_SECONDS, WAITING_SECONDS, Admission
from services.orchestrator.runs.run_state import RunView
from tests.support.clock import Clock


def live(**tenants: int) -> dict[str, Any]:
    """So many runs under way, by tenant."""
    return {
        f"{tenant}-{number}": SimpleNamespace(caller=SimpleNamespace(tenant=tenant), bytes=100, view=RunView())
        for tenant, count in tenants.items()
        for number in range(count)
    }


def test_places_are_free_again_once_acceptance_is_over() -> None:
    admission = Admission({}, most_runs=1, most_bytes=1000)
    with admission.place("a", 1), pytest.raises(Overloaded) as caught, admission.place("a", 1):
        pass
    assert caught.value.retry_after
    with admission.place("a", 1):
        assert admission.free == 0
    assert admission.free == 1


def test_one_tenant_alone_may_have_all_places() -> None:
    admission = Admission(live(a=9), most_runs=10, most_bytes=10_000)
    with admission.place("a", 1):
        pass


def test_who_has_more_than_a_share_lets_others_go_first() -> None:
    clock, runs = Clock(), live(a=10)
    admission = Admission(runs, most_runs=10, most_bytes=10_000, clock=clock)
    with pytest.raises(Overloaded, match="10 runs"), admission.place("b", 1):
        pass
    runs.popitem()
    with pytest.raises(Overloaded, match="share"), admission.place("a", 1):
        pass
    with admission.place("b", 1):
        pass
    clock.now += WAITING_SECONDS + 1
    with admission.place("a", 1):
        pass


def test_items_of_batches_leave_memory_for_people() -> None:
    runs = live(a=7)
    admission = Admission(runs, most_runs=10, most_bytes=1000)
    assert not admission.crowded
    runs |= live(b=1)
    assert admission.crowded
    with admission.place("a", 200):
        pass


def test_memory_is_a_limit_of_its_own() -> None:
    admission = Admission(live(a=5), most_runs=10, most_bytes=600)
    with admission.place("a", 100):
        pass
    with pytest.raises(Overloaded, match="memory"), admission.place("a", 101):
        pass


def test_no_more_are_let_in_at_once_than_there_are_places() -> None:
    admission = Admission({}, most_runs=3, most_bytes=1000)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(admission.place("a", 1))
        with pytest.raises(Overloaded), admission.place("a", 1):
            pass


def test_none_is_let_in_to_wait_where_runs_are_kept_too_slowly() -> None:
    behind = BEHIND_SECONDS + 1
    admission = Admission({}, most_runs=3, most_bytes=1000, behind=lambda: behind)
    with pytest.raises(Overloaded, match="faster") as caught, admission.place("a", 1):
        pass
    assert caught.value.retry_after
    behind = 0.0
    with admission.place("a", 1):
        pass
