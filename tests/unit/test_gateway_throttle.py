"""Throttle of run requests."""

from contextlib import ExitStack

import pytest

from gateway.limits.throttle import MAX_WAIT_SECONDS, MAX_WAITING, MEMORY_SECONDS, PROBE_REFUSALS, Throttle
from services.common.errors import Overloaded
from tests.support.clock import Clock


def is_throttled(throttle: Throttle, tenant: str = "one") -> bool:
    """Requests a run while the orchestrator is full; returns whether the throttle rejected it already."""
    orchestrator_error = Overloaded("the orchestrator is full")
    with pytest.raises(Overloaded) as caught, throttle.admit(tenant):
        raise orchestrator_error
    return caught.value is not orchestrator_error


def accepted(throttle: Throttle, tenant: str = "one") -> None:
    with throttle.admit(tenant):
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    return Throttle(clock)


def test_few_refusals_do_not_throttle(throttle: Throttle) -> None:
    assert not any(is_throttled(throttle) for _ in range(int(PROBE_REFUSALS)))
    accepted(throttle)


def test_many_refusals_throttle(throttle: Throttle) -> None:
    assert [is_throttled(throttle) for _ in range(100)].count(False) == PROBE_REFUSALS + 1


def test_throttle_does_not_affect_other_tenants(throttle: Throttle) -> None:
    assert [is_throttled(throttle) for _ in range(100)][-1]
    accepted(throttle, "other")


def test_throttle_ends_after_a_while(throttle: Throttle, clock: Clock) -> None:
    assert [is_throttled(throttle) for _ in range(100)][-1]
    clock.now += MEMORY_SECONDS / 4
    accepted(throttle)


def test_burst_of_refusals_throttles_no_longer_than_a_few(throttle: Throttle, clock: Clock) -> None:
    orchestrator_error = Overloaded("the orchestrator is full")
    admit = [throttle.admit("one") for _ in range(1000)]
    for each in admit:
        each.__enter__()
    for each in admit:
        assert not each.__exit__(Overloaded, orchestrator_error, None)
    assert is_throttled(throttle)
    clock.now += MEMORY_SECONDS / 4
    accepted(throttle)


def test_tolerated_refusals_grow_with_accepted_runs(throttle: Throttle) -> None:
    assert not is_throttled(throttle)
    for _ in range(100):
        accepted(throttle)
    assert [is_throttled(throttle) for _ in range(100)].count(False) == pytest.approx(PROBE_REFUSALS + 20, abs=1)


def test_refusals_of_the_gateway_do_not_count(throttle: Throttle) -> None:
    for _ in range(100):
        with pytest.raises(Overloaded, match="a key"), throttle.admit("one"):
            raise Overloaded("a key may have one", reason="RUNS_LIMIT")
    accepted(throttle)


def test_stalled_acceptance_rejects_further_runs(throttle: Throttle, clock: Clock) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_WAITING + 1):
            stack.enter_context(throttle.admit("other"))
        accepted(throttle)
        clock.now += MAX_WAIT_SECONDS + 1
        with pytest.raises(Overloaded) as caught:
            accepted(throttle)
    assert caught.value.retry_after
    accepted(throttle)
