import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from services.selector.single_flight_cache import SingleFlightCache


class BlockedComputation:
    """A computation that ends once the test allows it."""

    def __init__(self) -> None:
        self.calls, self.is_cancelled = 0, False
        self.started, self.may_finish = asyncio.Event(), asyncio.Event()

    async def fail(self) -> str:
        await self.answer()
        raise ValueError("no")

    async def answer(self) -> str:
        self.calls += 1
        self.started.set()
        try:
            await self.may_finish.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        return f"answer {self.calls}"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_cache(
    *,
    size: int = 9,
    clock: Callable[[], float] = Clock(),  # noqa: B008  # a stopped clock
    is_cacheable: bool = True,
) -> SingleFlightCache[str, str]:
    return SingleFlightCache(lambda _: is_cacheable, seconds=10, size=size, clock=clock)


async def start_eight_requests(
    cache: SingleFlightCache[str, str], computation: BlockedComputation, compute: Callable[[], Coroutine[Any, Any, str]]
) -> list[Any]:
    """Starts eight equal requests; returns once the computation has started, after the last of them."""
    tasks = [asyncio.create_task(cache.get("key", compute)) for _ in range(8)]
    await computation.started.wait()
    return tasks


async def test_concurrent_requests_for_a_key_share_one_computation() -> None:
    computation, cache = BlockedComputation(), make_cache()
    tasks = await start_eight_requests(cache, computation, computation.answer)
    computation.may_finish.set()
    results = await asyncio.gather(*tasks)
    assert [answer for answer, _ in results] == ["answer 1"] * 8
    assert [is_first for _, is_first in results].count(True) == 1
    assert computation.calls == 1


async def test_value_expires_after_its_lifetime() -> None:
    computation, clock = BlockedComputation(), Clock()
    computation.may_finish.set()
    cache = make_cache(clock=clock)
    assert await cache.get("key", computation.answer) == ("answer 1", True)
    clock.now = 9.9
    assert await cache.get("key", computation.answer) == ("answer 1", False)
    clock.now = 10.0
    assert await cache.get("key", computation.answer) == ("answer 2", True)


async def test_oldest_value_is_evicted_first() -> None:
    computation, cache = BlockedComputation(), make_cache(size=2)
    computation.may_finish.set()
    for key in "abc":
        await cache.get(key, computation.answer)
    assert not (await cache.get("c", computation.answer))[1]
    assert not (await cache.get("b", computation.answer))[1]
    assert (await cache.get("a", computation.answer))[1]


async def test_value_that_is_not_cacheable_is_computed_again() -> None:
    computation, cache = BlockedComputation(), make_cache(is_cacheable=False)
    computation.may_finish.set()
    assert [await cache.get("key", computation.answer) for _ in range(2)] == [("answer 1", True), ("answer 2", True)]


@pytest.mark.parametrize("cancelled", [0, 3])
async def test_cancelled_request_does_not_cancel_the_shared_computation(cancelled: int) -> None:
    computation, cache = BlockedComputation(), make_cache()
    tasks = await start_eight_requests(cache, computation, computation.answer)
    tasks[cancelled].cancel()
    with suppress(asyncio.CancelledError):
        await tasks[cancelled]
    computation.may_finish.set()
    results = await asyncio.gather(*(task for task in tasks if task is not tasks[cancelled]))
    assert len(results) == 7
    assert computation.calls == 1
    assert not computation.is_cancelled
    assert [is_first for _, is_first in results].count(True) == 1


async def test_computation_is_cancelled_when_all_requests_are_cancelled() -> None:
    computation, cache = BlockedComputation(), make_cache()
    tasks = await start_eight_requests(cache, computation, computation.answer)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert computation.is_cancelled
    computation.may_finish.set()
    assert await cache.get("key", computation.answer) == ("answer 2", True)


async def test_error_is_raised_by_all_requests_and_not_cached() -> None:
    computation, cache = BlockedComputation(), make_cache()
    tasks = await start_eight_requests(cache, computation, computation.fail)
    computation.may_finish.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in results] == [ValueError] * 8
    assert await cache.get("key", computation.answer) == ("answer 2", True)
