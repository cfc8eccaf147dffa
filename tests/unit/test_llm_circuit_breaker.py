"""When an endpoint is left alone."""

import pytest

from services.llm.circuit_breaker import COOL_DOWN_SECONDS, FAILURES, Breaker
from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def broken(breaker: Breaker) -> Breaker:
    for _ in range(FAILURES):
        breaker.failed("it is down")
    return breaker


def test_it_opens_after_failures_in_a_row(breaker: Breaker) -> None:
    for _ in range(FAILURES - 1):
        breaker.failed("it is down")
        assert breaker.admits()
    breaker.failed("it is down")
    assert not breaker.admits()
    assert breaker.reason == "it is down"


def test_a_success_between_failures_keeps_it_closed(breaker: Breaker) -> None:
    for _ in range(3 * FAILURES):
        breaker.failed("it is down")
        breaker.succeeded()
    assert breaker.admits()


def test_after_the_cool_down_one_call_is_let_in(breaker: Breaker, clock: Clock) -> None:
    broken(breaker)
    clock.now = COOL_DOWN_SECONDS - 1
    assert not breaker.admits()
    assert breaker.seconds_left() == 1
    clock.now = COOL_DOWN_SECONDS
    assert breaker.admits()
    assert not breaker.admits()


def test_a_probe_that_succeeds_closes_it(breaker: Breaker, clock: Clock) -> None:
    broken(breaker)
    clock.now = COOL_DOWN_SECONDS
    assert breaker.admits()
    breaker.succeeded()
    assert breaker.admits()
    assert breaker.admits()


def test_a_probe_that_fails_opens_it_for_another_cool_down(breaker: Breaker, clock: Clock) -> None:
    broken(breaker)
    clock.now = COOL_DOWN_SECONDS
    assert breaker.admits()
    breaker.failed("it is still down")
    clock.now += COOL_DOWN_SECONDS - 1
    assert not breaker.admits()
    clock.now += 1
    assert breaker.admits()


def test_a_probe_that_says_nothing_lets_the_next_one_in(breaker: Breaker, clock: Clock) -> None:
    broken(breaker)
    clock.now = COOL_DOWN_SECONDS
    assert breaker.admits()
    breaker.left()
    assert breaker.admits()


def test_nonsense_in_a_row_opens_it_though_every_call_comes_to_its_end(breaker: Breaker, clock: Clock) -> None:
    for _ in range(FAILURES):
        assert breaker.admits()
        breaker.succeeded()
        breaker.judged(ok=False)
    assert not breaker.admits()
    clock.now = COOL_DOWN_SECONDS
    assert breaker.admits()
    breaker.succeeded()
    breaker.judged(ok=False)
    assert not breaker.admits()


def test_an_answer_that_makes_sense_forgives_the_nonsense_before(breaker: Breaker) -> None:
    for _ in range(3 * FAILURES):
        breaker.judged(ok=False)
        breaker.judged(ok=True)
    assert breaker.admits()


def test_what_was_under_way_when_it_opened_does_not_close_it(breaker: Breaker) -> None:
    broken(breaker).succeeded()
    assert not breaker.admits()
