import asyncio

import pytest

from experts.host.active_calls import ActiveCalls, BatchCall, ProgressUpdate
from protos.hugginggpt.v1.usage_pb2 import Usage


class RecordedProgress:
    """Records progress updates; lets a test wait for them."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, ProgressUpdate]] = []
        self._more = asyncio.Event()

    async def record(self, call_id: str, update: ProgressUpdate) -> None:
        self.updates.append((call_id, update))
        self._more.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.updates) < count:
                self._more.clear()
                await self._more.wait()


async def test_follow_reports_a_call_until_it_ends() -> None:
    calls, recorded = ActiveCalls(), RecordedProgress()
    with calls.track("default", "a") as call:
        following = asyncio.create_task(calls.follow("default", ["a", "unknown"], recorded.record))
        await recorded.wait_for(1)
        await asyncio.to_thread(call.progress, 0.5, "half")
        await recorded.wait_for(2)
    async with asyncio.timeout(5):
        await following
    assert recorded.updates == [("a", ProgressUpdate()), ("a", ProgressUpdate(0.5, "half"))]


async def test_follow_ends_with_the_last_call() -> None:
    calls, recorded = ActiveCalls(), RecordedProgress()
    with calls.track("default", "a"):
        with calls.track("default", "b"):
            following = asyncio.create_task(calls.follow("default", ["a", "b"], recorded.record))
            await recorded.wait_for(2)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not following.done()
    async with asyncio.timeout(5):
        await following


@pytest.mark.parametrize(("tenant", "call_id"), [("other", "a"), ("default", "b"), ("default", "")])
async def test_follow_ignores_unknown_calls_and_other_tenants(tenant: str, call_id: str) -> None:
    calls, recorded = ActiveCalls(), RecordedProgress()
    with calls.track("default", "a"), calls.track("default", ""):
        async with asyncio.timeout(5):
            await calls.follow(tenant, [call_id], recorded.record)
    assert recorded.updates == []


async def test_call_is_cancelled_after_its_block() -> None:
    with ActiveCalls().track("default", "a") as call:
        assert not call.cancelled
    assert call.cancelled


async def test_progress_of_a_call_with_items_is_their_share() -> None:
    with ActiveCalls().track("default", "a") as call:
        items = call.items(4)
        items.progress(0.9, "reported by the model")
        assert call.latest_progress == ProgressUpdate()
        items.count_ended(1)
        items.count_ended(2)
        assert call.latest_progress == ProgressUpdate()
        items.report()
        assert call.latest_progress == ProgressUpdate(0.75, "3 of 4 items")


async def test_items_end_with_their_call() -> None:
    with ActiveCalls().track("default", "a") as call:
        items = call.items(2)
        assert not items.cancelled
    assert items.cancelled


async def test_usage_of_a_batch_is_divided_by_items() -> None:
    calls = ActiveCalls()
    with calls.track("default", "a") as one, calls.track("default", "b") as many:
        items = many.items(3)
        BatchCall([one, items, items, items]).add_usage("cpu", 4.0)
    assert one.used == {"cpu": 1.0}
    assert many.used == {"cpu": 3.0}


async def test_llm_usage_of_items_adds_to_their_call() -> None:
    with ActiveCalls().track("default", "a") as call:
        call.add_llm_usage(10, 2, 0.5)
        call.items(2).add_llm_usage(5, 1, 0.25)
        assert call.llm_usage == Usage(input_tokens=15, output_tokens=3, cost=0.75)


async def test_progress_fraction_is_clamped() -> None:
    with ActiveCalls().track("default", "a") as call:
        call.progress(7)
        assert call.latest_progress.fraction == 1
        call.progress(-7)
        assert call.latest_progress.fraction == 0
