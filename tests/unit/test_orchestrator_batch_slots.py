"""How items of batches share places, and how they stand back where people ask."""

import asyncio
import time

import pytest

from protos.hugginggpt.v1.caller_pb2 import Caller
from services.orchestrator.batches import slots
from services.orchestrator.batches.slots import START_INTERVAL_SECONDS, BatchSlots

TENANT, MANY, FEW = (Caller(tenant=tenant) for tenant in ("tenant", "many", "few"))


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "CALM_SECONDS", 10.0)


def of(most: int, people: bool = False, crowded: bool = False) -> BatchSlots:
    return BatchSlots(most, lambda: people, lambda: crowded)


async def test_as_many_places_are_taken_as_there_are() -> None:
    shared = of(5)
    assert await shared.acquire(TENANT, 3) == 3
    assert await shared.acquire(TENANT, 3) == 2
    waiting = asyncio.create_task(shared.acquire(TENANT, 3))
    await asyncio.sleep(0)
    shared.release(TENANT)
    assert await waiting == 1


async def test_who_waits_longest_has_the_next_place() -> None:
    shared, order = of(1), []
    await shared.acquire(TENANT, 1)

    async def takes(name: str) -> None:
        await shared.acquire(TENANT, 1)
        order.append(name)
        shared.release(TENANT)

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(takes(name))
            for _ in range(3):
                await asyncio.sleep(0)
        shared.release(TENANT)
    assert order == ["a", "b", "c"]


async def test_items_begin_one_by_one_while_people_ask() -> None:
    shared, begun = of(100, people=True), time.monotonic()
    assert [await shared.acquire(TENANT, 8) for _ in range(4)] == [1, 1, 1, 1]
    assert time.monotonic() - begun >= 3 * START_INTERVAL_SECONDS


async def test_nothing_begins_without_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MEMORY_WAIT_SECONDS", 0.001)
    full = [True, True, False]
    shared = BatchSlots(1, lambda: False, lambda: full.pop(0))
    assert await shared.acquire(TENANT, 1) == 1
    assert full == []


async def test_a_wait_that_is_given_up_takes_no_place() -> None:
    shared = of(1)
    await shared.acquire(TENANT, 1)
    waiting = asyncio.create_task(shared.acquire(TENANT, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    shared.release(TENANT)
    assert await shared.acquire(TENANT, 1) == 1


async def test_a_tenant_has_a_few_places_while_another_has_all() -> None:
    shared = of(32)
    assert await shared.acquire(MANY, 32) == 32
    assert await shared.acquire(FEW, 8) == 2
    waiting = [asyncio.create_task(shared.acquire(tenant, 40)) for tenant in (MANY, FEW)]
    await asyncio.sleep(0)
    for _ in range(20):
        shared.release(MANY)
    assert await waiting[1] == 14, "its share, of which it has two"
    assert await waiting[0] == 4, "which is free once the other wants no more"


async def test_a_place_goes_to_the_tenant_that_has_fewer() -> None:
    shared = of(4)
    assert await shared.acquire(MANY, 4) == 4
    assert await shared.acquire(FEW, 1) == 1
    many, few = (asyncio.create_task(shared.acquire(tenant, 1)) for tenant in (MANY, FEW))
    for _ in range(3):
        await asyncio.sleep(0)
    for _ in range(2):
        shared.release(MANY)
    await few
    assert not many.done()
    shared.release(FEW, 2)
    assert await many == 1


async def test_a_key_has_no_more_places_than_it_may_in_all_its_batches() -> None:
    shared, limited = of(8), Caller(tenant="tenant", key_id="key", items_at_once=3)
    assert await shared.acquire(limited, 2) == 2
    assert await shared.acquire(limited, 4) == 1
    waiting = asyncio.create_task(shared.acquire(limited, 4))
    assert await shared.acquire(Caller(tenant="tenant", key_id="other"), 4) == 4
    assert not waiting.done()
    shared.release(limited, 2)
    assert await waiting == 2


async def test_items_start_though_no_round_of_the_event_loop_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "CALM_SECONDS", 0.0)
    monkeypatch.setattr(slots, "CALM_WAIT_SECONDS", 0.02)
    async with asyncio.timeout(30):
        assert await of(5).acquire(TENANT, 3) == 3


async def test_long_wait_for_a_short_round_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "CALM_SECONDS", 0.0)
    monkeypatch.setattr(slots, "CALM_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(slots, "REPORT_SECONDS", 0.01)
    assert await reported(of(5)) == {slots.BUSY}


async def test_long_wait_for_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MEMORY_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(slots, "REPORT_SECONDS", 0.0015)
    full = [True, True, False]
    assert await reported(BatchSlots(1, lambda: False, lambda: full.pop(0))) == {slots.MEMORY_LOW}


async def test_wait_for_others_items_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "REPORT_SECONDS", 0.0)
    shared = of(1)
    await shared.acquire(TENANT, 1)
    waiting = asyncio.create_task(reported(shared))
    await asyncio.sleep(0)
    shared.release(TENANT)
    assert await waiting == set()


async def reported(shared: BatchSlots) -> set[str]:
    """What is reported until a place is taken."""
    reasons: set[str] = set()

    async def report(reason: str) -> None:
        reasons.add(reason)

    async with asyncio.timeout(30):
        await shared.acquire(TENANT, 1, report)
    return reasons
