"""How items of batches share places, and how they stand back where people ask."""

import asyncio
import time

import pytest

from services.orchestrator.batches import places
from services.orchestrator.batches.places import PACE_SECONDS, Places


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "CALM_SECONDS", 10.0)


def of(most: int, people: bool = False, crowded: bool = False) -> Places:
    return Places(most, lambda: people, lambda: crowded)


async def test_as_many_places_are_taken_as_there_are() -> None:
    shared = of(5)
    assert await shared.take(3) == 3
    assert await shared.take(3) == 2
    waiting = asyncio.create_task(shared.take(3))
    await asyncio.sleep(0)
    shared.give_back()
    assert await waiting == 1


async def test_who_waits_longest_has_the_next_place() -> None:
    shared, order = of(1), []
    await shared.take(1)

    async def takes(name: str) -> None:
        await shared.take(1)
        order.append(name)
        shared.give_back()

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(takes(name))
            for _ in range(3):
                await asyncio.sleep(0)
        shared.give_back()
    assert order == ["a", "b", "c"]


async def test_items_begin_one_by_one_while_people_ask() -> None:
    shared, begun = of(100, people=True), time.monotonic()
    assert [await shared.take(8) for _ in range(4)] == [1, 1, 1, 1]
    assert time.monotonic() - begun >= 3 * PACE_SECONDS


async def test_nothing_begins_without_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "CROWDED_SECONDS", 0.001)
    full = [True, True, False]
    shared = Places(1, lambda: False, lambda: full.pop(0))
    assert await shared.take(1) == 1
    assert full == []


async def test_a_wait_that_is_given_up_takes_no_place() -> None:
    shared = of(1)
    await shared.take(1)
    waiting = asyncio.create_task(shared.take(1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    shared.give_back()
    assert await shared.take(1) == 1
