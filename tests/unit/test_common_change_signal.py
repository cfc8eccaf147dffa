"""ChangeSignal: every waiter is woken by a change, and none misses one."""

import asyncio

import pytest

from services.common.change_signal import ChangeSignal


async def test_notify_wakes_all_waiters() -> None:
    signal = ChangeSignal()
    waiters = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    signal.notify()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*waiters) == [1, 1, 1]


async def test_wait_returns_at_once_after_a_change_since_the_version() -> None:
    signal = ChangeSignal()
    version = signal.version
    signal.notify()
    async with asyncio.timeout(5):
        assert await signal.wait(version) == 1


async def test_wait_ignores_changes_before_the_version() -> None:
    signal = ChangeSignal()
    signal.notify()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await signal.wait(signal.version)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await signal.wait()
