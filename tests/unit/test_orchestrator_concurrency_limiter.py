"""Limits of concurrent calls, and the order in which permits are granted."""

import asyncio
import random
from collections import Counter

import pytest

from services.orchestrator.experts.concurrency_limiter import INTERACTIVE_IN_A_ROW, ConcurrencyLimiter, Permit


def permit(run: str = "run", expert: str = "expert", tenant: str = "tenant", *, batch: bool = False) -> Permit:
    return Permit(expert, tenant, run, batch)


async def grant_order(limiter: ConcurrencyLimiter, *requested: Permit) -> list[Permit]:
    """Order in which waiting calls get the only permit; each returns it at once."""
    order: list[Permit] = []

    async def call(requested: Permit) -> None:
        await limiter.acquire(requested)
        order.append(requested)
        limiter.release(requested)

    holder = permit("holder", tenant="holder")
    assert limiter.try_acquire(holder)
    async with asyncio.TaskGroup() as group:
        for each in requested:
            group.create_task(call(each))
        await asyncio.sleep(0)
        assert not order
        limiter.release(holder)
    return order


def is_idle(limiter: ConcurrencyLimiter) -> bool:
    """Whether no call holds or waits for a permit."""
    return not any((limiter._interactive, limiter._batch, limiter._experts, limiter._batch_calls, limiter._runs))


def single_permit() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(at_once=1, per_expert=1, per_run=1)


async def test_calls_of_a_run_keep_their_order() -> None:
    calls = [permit(expert=f"expert{number}") for number in (3, 1, 2)]
    assert await grant_order(single_permit(), *calls) == calls


async def test_runs_of_a_tenant_are_served_round_robin() -> None:
    calls = [*[permit("large")] * 3, *[permit("small")] * 2]
    order = [each.run for each in await grant_order(single_permit(), *calls)]
    assert order == ["large", "small", "large", "small", "large"]


async def test_tenants_are_served_round_robin() -> None:
    many = [permit(f"run{number}", tenant="many") for number in range(4)]
    few = [permit("one", tenant="few")] * 2
    order = [each.tenant for each in await grant_order(single_permit(), *many, *few)]
    assert order == ["many", "few", "many", "few", "many", "many"]


async def test_interactive_calls_come_first_and_batch_calls_still_progress() -> None:
    calls = [*[permit("batch", batch=True)] * 3, *[permit("interactive")] * 10]
    order = "".join("b" if each.batch else "i" for each in await grant_order(single_permit(), *calls))
    interactive = "i" * INTERACTIVE_IN_A_ROW
    assert order == f"{interactive}b{interactive}biib"


async def test_batch_calls_leave_permits_for_interactive_calls() -> None:
    limiter = ConcurrencyLimiter(at_once=12, per_expert=8, per_run=12)
    batch_item = permit("item", batch=True)
    assert [limiter.try_acquire(batch_item) for _ in range(7)] == [True] * 6 + [False]
    assert [limiter.try_acquire(permit("interactive")) for _ in range(3)] == [True, True, False]
    other_expert = permit("item", expert="other", batch=True)
    assert [limiter.try_acquire(other_expert) for _ in range(4)] == [True] * 3 + [False]
    waiting = asyncio.create_task(limiter.acquire(batch_item))
    await asyncio.sleep(0)
    limiter.release(permit("interactive"))
    await asyncio.sleep(0)
    assert not waiting.done()
    limiter.release(batch_item)
    async with asyncio.timeout(10):
        await waiting


async def test_batch_call_gets_a_single_permit() -> None:
    assert single_permit().try_acquire(permit(batch=True))


async def test_calls_that_wait_for_a_full_expert_do_not_block_others() -> None:
    limiter = ConcurrencyLimiter(at_once=9, per_expert=1, per_run=9)
    assert limiter.try_acquire(permit(expert="hung"))
    stuck = asyncio.create_task(limiter.acquire(permit(expert="hung")))
    await asyncio.sleep(0)
    assert limiter.try_acquire(permit(expert="fine"))
    waiting = asyncio.create_task(limiter.acquire(permit(expert="fine")))
    await asyncio.sleep(0)
    assert not waiting.done()
    limiter.release(permit(expert="fine"))
    async with asyncio.timeout(10):
        await waiting
    assert not stuck.done()
    stuck.cancel()


async def test_run_at_its_limit_does_not_block_other_runs() -> None:
    limiter = ConcurrencyLimiter(at_once=9, per_expert=9, per_run=2)
    assert all(limiter.try_acquire(permit("large")) for _ in range(2))
    assert not limiter.try_acquire(permit("large"))
    assert limiter.try_acquire(permit("small"))


async def test_cancelled_wait_leaves_the_queue() -> None:
    limiter = single_permit()
    assert limiter.try_acquire(permit("first"))
    cancelled, waiting = (asyncio.create_task(limiter.acquire(permit(run))) for run in ("cancelled", "waiting"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    limiter.release(permit("first"))
    async with asyncio.timeout(10):
        await waiting
    limiter.release(permit("waiting"))
    assert is_idle(limiter)
    assert limiter._free == 1


async def test_call_cancelled_as_its_permit_is_granted_returns_it() -> None:
    limiter = single_permit()
    assert limiter.try_acquire(permit("first"))
    cancelled = asyncio.create_task(limiter.acquire(permit("cancelled")))
    await asyncio.sleep(0)
    limiter.release(permit("first"))
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert limiter.try_acquire(permit("next"))


@pytest.mark.parametrize("seed", range(5))
async def test_limits_hold_and_every_permit_is_returned(seed: int) -> None:
    chance = random.Random(seed)
    limiter = ConcurrencyLimiter(at_once=6, per_expert=3, per_run=2)
    unfinished: Counter[str] = Counter()
    served = 0

    async def call(requested: Permit) -> None:
        nonlocal served
        await limiter.acquire(requested)
        try:
            unfinished.update((requested.expert, requested.run, "all"))
            assert unfinished["all"] <= 6
            assert unfinished[requested.expert] <= 3
            assert unfinished[requested.run] <= 2
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            served += 1
        finally:
            unfinished.subtract((requested.expert, requested.run, "all"))
            limiter.release(requested)

    def random_permit() -> Permit:
        run = chance.choice("abcdef")
        return permit(f"run-{run}", f"expert-{chance.choice('xyz')}", f"tenant-{run in 'ab'}", batch=run in "ace")

    calls = [asyncio.create_task(call(random_permit())) for _ in range(400)]
    cancelled = chance.sample(calls, 100)
    for each in cancelled:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        each.cancel()
    async with asyncio.timeout(5):
        done, _ = await asyncio.wait(calls)
    assert not [each for each in done if not each.cancelled() and each.exception()]
    assert served >= 300
    assert limiter._free == 6
    assert limiter._free_for_batch == 4
    assert is_idle(limiter)
