"""Circuit breaker of LLM endpoints."""

import pytest

from services.llm.circuit_breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN, CircuitBreaker
from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def opened(breaker: CircuitBreaker) -> CircuitBreaker:
    for _ in range(FAILURES_TO_OPEN):
        breaker.record_failure("it is down")
    return breaker


def test_circuit_opens_after_consecutive_failures(breaker: CircuitBreaker) -> None:
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.record_failure("it is down")
        assert breaker.try_start_call()
    breaker.record_failure("it is down")
    assert not breaker.try_start_call()
    assert breaker.reason == "it is down"


def test_success_between_failures_keeps_circuit_closed(breaker: CircuitBreaker) -> None:
    for _ in range(3 * FAILURES_TO_OPEN):
        breaker.record_failure("it is down")
        breaker.record_success()
    assert breaker.try_start_call()


def test_one_probe_is_allowed_after_cool_down(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker)
    clock.now = COOL_DOWN_SECONDS - 1
    assert not breaker.try_start_call()
    assert breaker.seconds_until_probe() == 1
    clock.now = COOL_DOWN_SECONDS
    assert breaker.try_start_call()
    assert not breaker.try_start_call()


def test_successful_probe_closes_circuit(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker)
    clock.now = COOL_DOWN_SECONDS
    assert breaker.try_start_call()
    breaker.record_success()
    assert breaker.try_start_call()
    assert breaker.try_start_call()


def test_failed_probe_opens_circuit_for_another_cool_down(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker)
    clock.now = COOL_DOWN_SECONDS
    assert breaker.try_start_call()
    breaker.record_failure("it is still down")
    clock.now += COOL_DOWN_SECONDS - 1
    assert not breaker.try_start_call()
    clock.now += 1
    assert breaker.try_start_call()


def test_inconclusive_probe_allows_the_next_one(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker)
    clock.now = COOL_DOWN_SECONDS
    assert breaker.try_start_call()
    breaker.record_inconclusive()
    assert breaker.try_start_call()


def test_consecutive_invalid_answers_open_circuit_although_calls_complete(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    for _ in range(FAILURES_TO_OPEN):
        assert breaker.try_start_call()
        breaker.record_success()
        breaker.record_answer(valid=False)
    assert not breaker.try_start_call()
    clock.now = COOL_DOWN_SECONDS
    assert breaker.try_start_call()
    breaker.record_success()
    breaker.record_answer(valid=False)
    assert not breaker.try_start_call()


def test_valid_answer_resets_count_of_invalid_answers(breaker: CircuitBreaker) -> None:
    for _ in range(3 * FAILURES_TO_OPEN):
        breaker.record_answer(valid=False)
        breaker.record_answer(valid=True)
    assert breaker.try_start_call()


def test_call_in_flight_when_circuit_opened_does_not_close_it(breaker: CircuitBreaker) -> None:
    opened(breaker).record_success()
    assert not breaker.try_start_call()
