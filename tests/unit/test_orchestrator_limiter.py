"""Whose call is made next."""

import asyncio
import random
from collections import Counter

import pytest

from services.orchestrator.experts.limiter import INTERACTIVE_IN_A_ROW, ConcurrencyLimiter, Permit


def turn(run: str = "run", expert: str = "expert", tenant: str = "tenant", *, batch: bool = False) -> Permit:
    return Permit(expert, tenant, run, batch)


async def queued(turns: ConcurrencyLimiter, *wanted: Permit) -> list[Permit]:
    """The order in which calls get one place that is taken until all of them wait, each giving it back at once."""
    order: list[Permit] = []

    async def call(wanted: Permit) -> None:
        await turns.acquire(wanted)
        order.append(wanted)
        turns.release(wanted)

    holder = turn("holder", tenant="holder")
    assert turns.try_acquire(holder)
    async with asyncio.TaskGroup() as group:
        for each in wanted:
            group.create_task(call(each))
        await asyncio.sleep(0)
        assert not order
        turns.release(holder)
    return order


def is_empty(turns: ConcurrencyLimiter) -> bool:
    return not any(
        (
            *(turns._interactive, turns._interactive._tenants, turns._interactive._waiting, turns._batch),
            *(turns._experts, turns._batch_calls, turns._runs),
        )
    )


def one_place() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(at_once=1, per_expert=1, per_run=1)


async def test_the_calls_of_a_run_keep_their_order() -> None:
    calls = [turn(expert=f"expert{number}") for number in (3, 1, 2)]
    assert await queued(one_place(), *calls) == calls


async def test_runs_of_a_tenant_take_turns_however_many_calls_each_has() -> None:
    calls = [*[turn("large")] * 3, *[turn("small")] * 2]
    assert [each.run for each in await queued(one_place(), *calls)] == ["large", "small", "large", "small", "large"]


async def test_tenants_take_turns_however_many_runs_each_has() -> None:
    many = [turn(f"run{number}", tenant="many") for number in range(4)]
    few = [turn("one", tenant="few")] * 2
    order = [each.tenant for each in await queued(one_place(), *many, *few)]
    assert order == ["many", "few", "many", "few", "many", "many"]


async def test_people_come_first_and_the_background_still_gets_on() -> None:
    calls = [*[turn("background", batch=True)] * 3, *[turn("person")] * 10]
    order = "".join("b" if each.batch else "p" for each in await queued(one_place(), *calls))
    people = "p" * INTERACTIVE_IN_A_ROW
    assert order == f"{people}b{people}bppb"


async def test_the_background_leaves_places_for_people() -> None:
    turns = ConcurrencyLimiter(at_once=12, per_expert=8, per_run=12)
    background = turn("item", batch=True)
    assert [turns.try_acquire(background) for _ in range(7)] == [True] * 6 + [False]
    assert [turns.try_acquire(turn("person")) for _ in range(3)] == [True, True, False]
    elsewhere = turn("item", expert="other", batch=True)
    assert [turns.try_acquire(elsewhere) for _ in range(4)] == [True] * 3 + [False]
    waiting = asyncio.create_task(turns.acquire(background))
    await asyncio.sleep(0)
    turns.release(turn("person"))
    await asyncio.sleep(0)
    assert not waiting.done()
    turns.release(background)
    async with asyncio.timeout(10):
        await waiting


async def test_where_there_is_one_place_the_background_has_it_too() -> None:
    assert one_place().try_acquire(turn(batch=True))


async def test_those_who_wait_for_a_full_expert_hold_up_nobody_else() -> None:
    turns = ConcurrencyLimiter(at_once=9, per_expert=1, per_run=9)
    assert turns.try_acquire(turn(expert="hung"))
    stuck = asyncio.create_task(turns.acquire(turn(expert="hung")))
    await asyncio.sleep(0)
    assert turns.try_acquire(turn(expert="fine"))
    waiting = asyncio.create_task(turns.acquire(turn(expert="fine")))
    await asyncio.sleep(0)
    assert not waiting.done()
    turns.release(turn(expert="fine"))
    async with asyncio.timeout(10):
        await waiting
    assert not stuck.done()
    stuck.cancel()


async def test_a_run_that_has_all_its_places_holds_up_no_other() -> None:
    turns = ConcurrencyLimiter(at_once=9, per_expert=9, per_run=2)
    assert all(turns.try_acquire(turn("greedy")) for _ in range(2))
    assert not turns.try_acquire(turn("greedy"))
    assert turns.try_acquire(turn("modest"))


async def test_who_goes_away_while_waiting_leaves_nothing_behind() -> None:
    turns = one_place()
    assert turns.try_acquire(turn("first"))
    leaving, staying = (asyncio.create_task(turns.acquire(turn(run))) for run in ("leaving", "staying"))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    turns.release(turn("first"))
    async with asyncio.timeout(10):
        await staying
    turns.release(turn("staying"))
    assert is_empty(turns)
    assert turns._free == 1


async def test_who_goes_away_as_its_turn_comes_loses_no_place() -> None:
    turns = one_place()
    assert turns.try_acquire(turn("first"))
    leaving = asyncio.create_task(turns.acquire(turn("leaving")))
    await asyncio.sleep(0)
    turns.release(turn("first"))
    leaving.cancel()
    await asyncio.wait([leaving])
    assert turns.try_acquire(turn("next"))


@pytest.mark.parametrize("seed", range(5))
async def test_limits_hold_nobody_is_forgotten_and_no_place_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    turns = ConcurrencyLimiter(at_once=6, per_expert=3, per_run=2)
    unfinished: Counter[str] = Counter()
    served = 0

    async def call(wanted: Permit) -> None:
        nonlocal served
        await turns.acquire(wanted)
        try:
            unfinished.update((wanted.expert, wanted.run, "all"))
            assert unfinished["all"] <= 6
            assert unfinished[wanted.expert] <= 3
            assert unfinished[wanted.run] <= 2
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            served += 1
        finally:
            unfinished.subtract((wanted.expert, wanted.run, "all"))
            turns.release(wanted)

    def any_turn() -> Permit:
        run = chance.choice("abcdef")
        return turn(f"run-{run}", f"expert-{chance.choice('xyz')}", f"tenant-{run in 'ab'}", batch=run in "ace")

    calls = [asyncio.create_task(call(any_turn())) for _ in range(400)]
    leaving = chance.sample(calls, 100)
    for each in leaving:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        each.cancel()
    async with asyncio.timeout(5):
        done, _ = await asyncio.wait(calls)
    assert not [each for each in done if not each.cancelled() and each.exception()]
    assert served >= 300
    assert (turns._free, turns._free_for_batch) == (6, 4)
    assert is_empty(turns)
