import asyncio

import pytest

from experts.host.active_calls import CallsUnderWay, Step


class Heard:
    """Keeps what was told; lets a test wait for it."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Step]] = []
        self._more = asyncio.Event()

    async def tell(self, call_id: str, step: Step) -> None:
        self.steps.append((call_id, step))
        self._more.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.steps) < count:
                self._more.clear()
                await self._more.wait()


async def test_a_call_is_followed_until_it_ends() -> None:
    calls, heard = CallsUnderWay(), Heard()
    with calls.entered("default", "a") as call:
        following = asyncio.create_task(calls.follow("default", ["a", "unknown"], heard.tell))
        await heard.until(1)
        await asyncio.to_thread(call.progress, 0.5, "half")
        await heard.until(2)
    async with asyncio.timeout(5):
        await following
    assert heard.steps == [("a", Step()), ("a", Step(0.5, "half"))]


async def test_following_ends_when_the_last_call_does() -> None:
    calls, heard = CallsUnderWay(), Heard()
    with calls.entered("default", "a"):
        with calls.entered("default", "b"):
            following = asyncio.create_task(calls.follow("default", ["a", "b"], heard.tell))
            await heard.until(2)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not following.done()
    async with asyncio.timeout(5):
        await following


@pytest.mark.parametrize(("tenant", "call_id"), [("other", "a"), ("default", "b"), ("default", "")])
async def test_calls_of_others_and_unknown_ones_are_left_out(tenant: str, call_id: str) -> None:
    calls, heard = CallsUnderWay(), Heard()
    with calls.entered("default", "a"), calls.entered("default", ""):
        async with asyncio.timeout(5):
            await calls.follow(tenant, [call_id], heard.tell)
    assert heard.steps == []


async def test_a_call_is_cancelled_once_its_caller_has_gone() -> None:
    with CallsUnderWay().entered("default", "a") as call:
        assert not call.cancelled
    assert call.cancelled


async def test_a_fraction_stays_between_0_and_1() -> None:
    with CallsUnderWay().entered("default", "a") as call:
        call.progress(7)
        assert call.step.fraction == 1
        call.progress(-7)
        assert call.step.fraction == 0
