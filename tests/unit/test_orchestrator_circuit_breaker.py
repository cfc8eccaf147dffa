"""When addresses and models of experts are left alone."""

import asyncio

import pytest

from services.orchestrator.experts.circuit_breaker import (
    COOL_DOWN_SECONDS,
    FAILURES,
    FORGET_SECONDS,
    LONGEST_COOL_DOWN_SECONDS,
    PROBE_SECONDS,
    CircuitBreakers,
    Key,
)
from tests.support.clock import Clock

PLACE = Key("expert", address="127.0.0.1:1")
MODEL = Key("expert", model="model")


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
async def circuits(clock: Clock) -> CircuitBreakers:
    return CircuitBreakers(clock)


def broken(circuits: CircuitBreakers, key: Key = PLACE) -> CircuitBreakers:
    for _ in range(FAILURES):
        circuits.failed(key, "it is down")
    return circuits


async def test_failures_in_a_row_open_a_circuit(circuits: CircuitBreakers) -> None:
    for _ in range(FAILURES - 1):
        circuits.failed(PLACE, "it is down")
        assert not circuits.seconds_left(PLACE)
    circuits.failed(PLACE, "it is down")
    assert circuits.seconds_left(PLACE) == COOL_DOWN_SECONDS
    assert circuits.is_open(PLACE)
    assert not circuits.seconds_left(MODEL)
    assert circuits.reason(MODEL, PLACE) == "it is down"


async def test_a_success_between_failures_keeps_it_closed(circuits: CircuitBreakers) -> None:
    for _ in range(3 * FAILURES):
        circuits.failed(PLACE, "it is down")
        circuits.succeeded(PLACE)
    assert circuits.all_closed


async def test_half_open_it_lets_one_call_in_and_others_wait_for_what_comes_of_it(
    circuits: CircuitBreakers, clock: Clock
) -> None:
    broken(circuits)
    clock.now += COOL_DOWN_SECONDS
    assert not circuits.seconds_left(PLACE)
    circuits.enter(PLACE, MODEL)
    assert circuits.seconds_left(PLACE) == PROBE_SECONDS
    circuits.succeeded(PLACE)
    assert circuits.all_closed


async def test_a_probe_that_takes_long_keeps_nobody_out_for_ever(circuits: CircuitBreakers, clock: Clock) -> None:
    broken(circuits)
    clock.now += COOL_DOWN_SECONDS
    circuits.enter(PLACE)
    clock.now += PROBE_SECONDS
    assert not circuits.seconds_left(PLACE)


async def test_a_probe_that_says_nothing_lets_the_next_in(circuits: CircuitBreakers, clock: Clock) -> None:
    broken(circuits)
    clock.now += COOL_DOWN_SECONDS
    circuits.enter(PLACE)
    circuits.ended_without_result(PLACE)
    assert not circuits.seconds_left(PLACE)
    assert circuits.is_open(PLACE)


async def test_every_probe_that_fails_doubles_the_cool_down_up_to_a_limit(
    circuits: CircuitBreakers, clock: Clock
) -> None:
    broken(circuits)
    waits = []
    for _ in range(8):
        waits.append(circuits.seconds_left(PLACE))
        clock.now += waits[-1]
        circuits.enter(PLACE)
        circuits.failed(PLACE, "still down")
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert waits[-1] == LONGEST_COOL_DOWN_SECONDS


async def test_calls_from_before_it_opened_do_not_prolong_it(circuits: CircuitBreakers, clock: Clock) -> None:
    broken(circuits)
    clock.now += COOL_DOWN_SECONDS / 2
    circuits.failed(PLACE, "a late one")
    circuits.ended_without_result(PLACE)
    assert circuits.seconds_left(PLACE) == COOL_DOWN_SECONDS / 2


async def test_a_model_that_said_when_it_can_be_loaded_again_is_not_tried_before(circuits: CircuitBreakers) -> None:
    for _ in range(FAILURES):
        circuits.failed(MODEL, "no such file", 25.0)
    assert circuits.seconds_left(MODEL) == 25.0


async def test_what_lets_nobody_in_is_to_be_avoided_and_what_may_be_tried_is_not(
    circuits: CircuitBreakers, clock: Clock
) -> None:
    broken(broken(circuits), MODEL)
    circuits.failed(Key("other", model="once"), "nan")
    avoided = [(avoid.expert, avoid.address, avoid.model_id) for avoid in circuits.avoid()]
    assert avoided == [("expert", "127.0.0.1:1", ""), ("expert", "", "model")]
    clock.now += COOL_DOWN_SECONDS
    assert not circuits.avoid()


async def test_those_who_wait_are_woken_by_what_is_known_anew(circuits: CircuitBreakers) -> None:
    broken(circuits)
    waiting = asyncio.create_task(circuits.wait_for_change(60))
    await asyncio.sleep(0)
    circuits.succeeded(PLACE)
    async with asyncio.timeout(10):
        await waiting
    await circuits.wait_for_change(0.001)


async def test_what_nobody_calls_any_more_is_forgotten(circuits: CircuitBreakers, clock: Clock) -> None:
    broken(circuits)
    clock.now += FORGET_SECONDS / 2
    broken(circuits, MODEL)
    clock.now += FORGET_SECONDS / 2 + 1
    circuits.forget()
    assert (circuits.is_open(PLACE), circuits.is_open(MODEL)) == (False, True)


async def test_open_circuits_are_counted_and_logged_once_per_change(
    circuits: CircuitBreakers, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = []

    class Counter:
        def add(self, amount: int, labels: dict[str, str]) -> None:
            counted.append((amount, labels))

    monkeypatch.setattr("services.orchestrator.metrics.circuit_open", Counter())
    broken(circuits)
    for _ in range(3):
        clock.now += LONGEST_COOL_DOWN_SECONDS
        circuits.enter(PLACE)
        circuits.failed(PLACE, "still down")
    circuits.succeeded(PLACE)
    circuits.succeeded(PLACE)
    label = {"expert": "expert", "kind": "address"}
    assert counted == [(1, label), (-1, label)]
    logged = capsys.readouterr().out
    assert (logged.count("circuit opened"), logged.count("circuit closed")) == (1, 1)
