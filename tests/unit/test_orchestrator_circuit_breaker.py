"""Circuit breakers of addresses and models of experts."""

import asyncio

import pytest

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid
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

ADDRESS = Key("expert", address="127.0.0.1:1")
MODEL = Key("expert", model="model")


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
async def circuits(clock: Clock) -> CircuitBreakers:
    return CircuitBreakers(clock)


def open_circuit(circuits: CircuitBreakers, key: Key = ADDRESS) -> CircuitBreakers:
    for _ in range(FAILURES):
        circuits.failed(key, "it is down")
    return circuits


async def test_consecutive_failures_open_a_circuit(circuits: CircuitBreakers) -> None:
    for _ in range(FAILURES - 1):
        circuits.failed(ADDRESS, "it is down")
        assert not circuits.seconds_left(ADDRESS)
    circuits.failed(ADDRESS, "it is down")
    assert circuits.seconds_left(ADDRESS) == COOL_DOWN_SECONDS
    assert circuits.is_open(ADDRESS)
    assert not circuits.seconds_left(MODEL)
    assert circuits.reason(MODEL, ADDRESS) == "it is down"


async def test_success_between_failures_keeps_a_circuit_closed(circuits: CircuitBreakers) -> None:
    for _ in range(3 * FAILURES):
        circuits.failed(ADDRESS, "it is down")
        circuits.succeeded(ADDRESS)
    assert circuits.all_closed


async def test_half_open_circuit_lets_one_probe_through(circuits: CircuitBreakers, clock: Clock) -> None:
    open_circuit(circuits)
    clock.now += COOL_DOWN_SECONDS
    assert not circuits.seconds_left(ADDRESS)
    circuits.enter(ADDRESS, MODEL)
    assert circuits.seconds_left(ADDRESS) == PROBE_SECONDS
    circuits.succeeded(ADDRESS)
    assert circuits.all_closed


async def test_long_probe_blocks_other_calls_for_a_limited_time(circuits: CircuitBreakers, clock: Clock) -> None:
    open_circuit(circuits)
    clock.now += COOL_DOWN_SECONDS
    circuits.enter(ADDRESS)
    clock.now += PROBE_SECONDS
    assert not circuits.seconds_left(ADDRESS)


async def test_probe_without_result_lets_the_next_probe_through(circuits: CircuitBreakers, clock: Clock) -> None:
    open_circuit(circuits)
    clock.now += COOL_DOWN_SECONDS
    circuits.enter(ADDRESS)
    circuits.ended_without_result(ADDRESS)
    assert not circuits.seconds_left(ADDRESS)
    assert circuits.is_open(ADDRESS)


async def test_failed_probe_doubles_the_cool_down_up_to_a_limit(circuits: CircuitBreakers, clock: Clock) -> None:
    open_circuit(circuits)
    waits = []
    for _ in range(8):
        waits.append(circuits.seconds_left(ADDRESS))
        clock.now += waits[-1]
        circuits.enter(ADDRESS)
        circuits.failed(ADDRESS, "still down")
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert waits[-1] == LONGEST_COOL_DOWN_SECONDS


async def test_late_failure_does_not_extend_the_cool_down(circuits: CircuitBreakers, clock: Clock) -> None:
    open_circuit(circuits)
    clock.now += COOL_DOWN_SECONDS / 2
    circuits.failed(ADDRESS, "a late one")
    circuits.ended_without_result(ADDRESS)
    assert circuits.seconds_left(ADDRESS) == COOL_DOWN_SECONDS / 2


async def test_cool_down_is_at_least_the_retry_after(circuits: CircuitBreakers) -> None:
    for _ in range(FAILURES):
        circuits.failed(MODEL, "no such file", 25.0)
    assert circuits.seconds_left(MODEL) == 25.0


async def test_only_circuits_that_block_calls_are_avoided(circuits: CircuitBreakers, clock: Clock) -> None:
    open_circuit(open_circuit(circuits), MODEL)
    circuits.failed(Key("other", model="once"), "nan")
    assert circuits.avoid() == [
        Avoid(expert="expert", address=ADDRESS.address),
        Avoid(expert="expert", model_id="model"),
    ]
    clock.now += COOL_DOWN_SECONDS
    assert not circuits.avoid()


async def test_change_of_a_circuit_ends_waiting(circuits: CircuitBreakers) -> None:
    open_circuit(circuits)
    waiting = asyncio.create_task(circuits.wait_for_change(60))
    await asyncio.sleep(0)
    circuits.succeeded(ADDRESS)
    async with asyncio.timeout(10):
        await waiting
    await circuits.wait_for_change(0.001)


async def test_unused_circuit_is_forgotten(circuits: CircuitBreakers, clock: Clock) -> None:
    open_circuit(circuits)
    clock.now += FORGET_SECONDS / 2
    open_circuit(circuits, MODEL)
    clock.now += FORGET_SECONDS / 2 + 1
    circuits.forget()
    assert not circuits.is_open(ADDRESS)
    assert circuits.is_open(MODEL)


async def test_open_circuits_are_counted_and_logged_once_per_change(
    circuits: CircuitBreakers, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = []

    class Counter:
        def add(self, amount: int, labels: dict[str, str]) -> None:
            counted.append((amount, labels))

    monkeypatch.setattr("services.orchestrator.metrics.circuit_open", Counter())
    open_circuit(circuits)
    for _ in range(3):
        clock.now += LONGEST_COOL_DOWN_SECONDS
        circuits.enter(ADDRESS)
        circuits.failed(ADDRESS, "still down")
    circuits.succeeded(ADDRESS)
    circuits.succeeded(ADDRESS)
    label = {"expert": "expert", "kind": "address"}
    assert counted == [(1, label), (-1, label)]
    logged = capsys.readouterr().out
    assert logged.count("circuit opened") == 1
    assert logged.count("circuit closed") == 1
