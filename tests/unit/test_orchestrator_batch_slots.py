"""Slots for batch items: shared fairly between tenants, granted slowly while interactive runs are active."""

import asyncio
import time

import pytest

from protos.hugginggpt.v1.caller_pb2 import Caller
from services.orchestrator.batches import slots
from services.orchestrator.batches.slots import START_INTERVAL_SECONDS, BatchSlots

TENANT, LARGE_TENANT, SMALL_TENANT = (Caller(tenant=tenant) for tenant in ("tenant", "large", "small"))
LIMITED_KEY = Caller(tenant="tenant", key_id="key", items_at_once=3)


@pytest.fixture(autouse=True)
def calm_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round of the event loop counts as short."""
    monkeypatch.setattr(slots, "CALM_SECONDS", 10.0)


@pytest.fixture
def late_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round of the event loop counts as short."""
    monkeypatch.setattr(slots, "CALM_SECONDS", 0.0)
    monkeypatch.setattr(slots, "CALM_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(slots, "OVERLOAD_SECONDS", 0.01)


def batch_slots(limit: int, *, interactive: bool = False) -> BatchSlots:
    return BatchSlots(limit, lambda: interactive, lambda: False)


def low_on_memory(checks: int) -> BatchSlots:
    """Slots for which memory is low at the first checks."""
    results = [True] * checks
    return BatchSlots(1, lambda: False, lambda: bool(results and results.pop()))


async def started(waiting: "asyncio.Task[int]") -> "asyncio.Task[int]":
    """Lets a task run until it waits."""
    for _ in range(3):
        await asyncio.sleep(0)
    return waiting


async def test_no_more_slots_are_granted_than_the_limit() -> None:
    shared = batch_slots(5)
    assert await shared.acquire(TENANT, 3) == 3
    assert await shared.acquire(TENANT, 3) == 2


async def test_request_without_free_slot_waits_for_a_release() -> None:
    shared = batch_slots(1)
    await shared.acquire(TENANT, 1)
    waiting = await started(asyncio.create_task(shared.acquire(TENANT, 3)))
    shared.release(TENANT)
    assert await waiting == 1


async def test_oldest_request_is_served_first() -> None:
    shared, order = batch_slots(1), []
    await shared.acquire(TENANT, 1)

    async def hold_briefly(name: str) -> int:
        count = await shared.acquire(TENANT, 1)
        order.append(name)
        shared.release(TENANT)
        return count

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            await started(group.create_task(hold_briefly(name)))
        shared.release(TENANT)
    assert order == ["a", "b", "c"]


async def test_slots_are_granted_one_by_one_while_interactive_runs_are_active() -> None:
    shared, begin = batch_slots(100, interactive=True), time.monotonic()
    assert [await shared.acquire(TENANT, 8) for _ in range(4)] == [1, 1, 1, 1]
    assert time.monotonic() - begin >= 3 * START_INTERVAL_SECONDS


async def test_no_slot_is_granted_while_memory_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MEMORY_WAIT_SECONDS", 0.001)
    low = [True, True, False]
    shared = BatchSlots(1, lambda: False, lambda: low.pop(0))
    assert await shared.acquire(TENANT, 1) == 1
    assert low == []


async def test_cancelled_request_takes_no_slot() -> None:
    shared = batch_slots(1)
    await shared.acquire(TENANT, 1)
    waiting = await started(asyncio.create_task(shared.acquire(TENANT, 1)))
    waiting.cancel()
    await asyncio.wait([waiting])
    shared.release(TENANT)
    assert await shared.acquire(TENANT, 1) == 1


async def test_tenant_gets_its_guaranteed_share_while_another_holds_all_slots() -> None:
    shared = batch_slots(32)
    assert await shared.acquire(LARGE_TENANT, 32) == 32
    assert await shared.acquire(SMALL_TENANT, 8) == 2


async def test_waiting_tenants_share_released_slots() -> None:
    shared = batch_slots(32)
    await shared.acquire(LARGE_TENANT, 32)
    await shared.acquire(SMALL_TENANT, 8)
    waiting = [asyncio.create_task(shared.acquire(tenant, 40)) for tenant in (LARGE_TENANT, SMALL_TENANT)]
    await asyncio.sleep(0)
    for _ in range(20):
        shared.release(LARGE_TENANT)
    assert await waiting[1] == 14, "half of all slots, of which the tenant holds two"
    assert await waiting[0] == 4, "the rest, once the other tenant no longer waits"


async def test_released_slot_goes_to_the_tenant_with_fewer_slots() -> None:
    shared = batch_slots(4)
    await shared.acquire(LARGE_TENANT, 4)
    await shared.acquire(SMALL_TENANT, 1)
    large = asyncio.create_task(shared.acquire(LARGE_TENANT, 1))
    small = await started(asyncio.create_task(shared.acquire(SMALL_TENANT, 1)))
    for _ in range(2):
        shared.release(LARGE_TENANT)
    await small
    assert not large.done()
    shared.release(SMALL_TENANT, 2)
    assert await large == 1


async def test_all_batches_of_an_api_key_share_its_limit() -> None:
    shared = batch_slots(8)
    assert await shared.acquire(LIMITED_KEY, 2) == 2
    assert await shared.acquire(LIMITED_KEY, 4) == 1
    waiting = await started(asyncio.create_task(shared.acquire(LIMITED_KEY, 4)))
    shared.release(LIMITED_KEY, 2)
    assert await waiting == 2


async def test_api_key_at_its_limit_does_not_block_other_keys() -> None:
    shared = batch_slots(8)
    await shared.acquire(LIMITED_KEY, 3)
    waiting = await started(asyncio.create_task(shared.acquire(LIMITED_KEY, 4)))
    assert await shared.acquire(Caller(tenant="tenant", key_id="other"), 4) == 4
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.usefixtures("late_event_loop")
async def test_slots_are_granted_although_the_event_loop_stays_late() -> None:
    async with asyncio.timeout(30):
        assert await batch_slots(5).acquire(TENANT, 3) == 3


# ---------------------------------------------------------------- reported reasons


class Reports(list[str]):
    """Reasons that acquire() reports, without repetitions."""

    def __call__(self, reason: str) -> None:
        if not self or self[-1] != reason:
            self.append(reason)


async def acquire_and_report(shared: BatchSlots, caller: Caller = TENANT) -> list[str]:
    """Acquires a slot and returns the reported reasons."""
    reports = Reports()
    async with asyncio.timeout(30):
        await shared.acquire(caller, 1, reports)
    return reports


async def test_free_slot_reports_no_reason() -> None:
    assert await acquire_and_report(batch_slots(1)) == [""]


@pytest.mark.usefixtures("late_event_loop")
async def test_late_event_loop_is_reported() -> None:
    assert await acquire_and_report(batch_slots(5)) == [slots.OVERLOADED]


async def test_low_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MEMORY_WAIT_SECONDS", 0.001)
    assert await acquire_and_report(low_on_memory(checks=2)) == [slots.MEMORY_LOW]


async def test_active_interactive_runs_are_reported() -> None:
    assert await acquire_and_report(batch_slots(1, interactive=True)) == [slots.INTERACTIVE]


async def test_missing_slot_is_reported() -> None:
    shared, reports = batch_slots(1), Reports()
    await shared.acquire(TENANT, 1)
    waiting = await started(asyncio.create_task(shared.acquire(TENANT, 1, reports)))
    assert reports == [slots.SLOTS_TAKEN]
    waiting.cancel()


async def test_limit_of_the_api_key_is_reported() -> None:
    shared, reports = batch_slots(8), Reports()
    await shared.acquire(LIMITED_KEY, 3)
    waiting = await started(asyncio.create_task(shared.acquire(LIMITED_KEY, 1, reports)))
    assert reports == [slots.KEY_LIMIT]
    waiting.cancel()


async def test_slot_granted_after_a_wait_does_not_clear_the_reason() -> None:
    shared, reports = batch_slots(1), Reports()
    await shared.acquire(TENANT, 1)
    waiting = await started(asyncio.create_task(shared.acquire(TENANT, 1, reports)))
    shared.release(TENANT)
    await waiting
    assert reports == [slots.SLOTS_TAKEN]
