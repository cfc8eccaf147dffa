"""Following a call that takes long."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from protos.hugginggpt.v1.expert_pb2 import ProgressEvent
from services.orchestrator.experts.infer_call import ProgressFollower


class Steps:
    """An expert whose call goes through steps at once, and then hangs."""

    def __init__(self, *fractions: float) -> None:
        self.followed: list[str] = []
        self.told, self.left = asyncio.Event(), asyncio.Event()
        self._fractions = fractions

    async def Progress(self, request: Any, **_: Any) -> AsyncIterator[ProgressEvent]:
        self.followed += request.call_ids
        for fraction in self._fractions:
            yield ProgressEvent(fraction=fraction)
        self.told.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()


async def test_a_call_is_followed_once_it_takes_long_and_not_every_step_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.orchestrator.experts.infer_call.PROGRESS_AFTER_SECONDS", 0.0)
    expert, told = Steps(0.1, 0.2, 0.3), list[float]()
    following = ProgressFollower(expert, "call", lambda fraction, _: told.append(fraction))  # type: ignore[arg-type]  # as much of a stub as is used
    async with asyncio.timeout(5):
        await expert.told.wait()
        assert (expert.followed, told) == (["call"], [0.1])
        following.stop()
        await expert.left.wait()


async def test_a_call_that_ends_soon_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.infer_call.PROGRESS_AFTER_SECONDS", 0.0)
    ended, later = Steps(), Steps()
    ProgressFollower(ended, "ended", lambda *_: None).stop()  # type: ignore[arg-type]  # as above
    following = ProgressFollower(later, "later", lambda *_: None)  # type: ignore[arg-type]  # as above
    async with asyncio.timeout(5):
        await later.told.wait()
    following.stop()
    assert not ended.followed
