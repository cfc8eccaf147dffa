"""Progress of long calls."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from protos.hugginggpt.v1.expert_pb2 import ProgressEvent
from services.orchestrator.experts.infer_call import ProgressFollower


class SteppingExpert:
    """An expert whose Progress stream sends its steps at once, and then hangs."""

    def __init__(self, *fractions: float) -> None:
        self.followed: list[str] = []
        self.sent_all, self.cancelled = asyncio.Event(), asyncio.Event()
        self._fractions = fractions

    async def Progress(self, request: Any, **_: Any) -> AsyncIterator[ProgressEvent]:
        self.followed += request.call_ids
        for fraction in self._fractions:
            yield ProgressEvent(fraction=fraction)
        self.sent_all.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


async def test_long_call_is_followed_and_reported_at_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.orchestrator.experts.infer_call.PROGRESS_AFTER_SECONDS", 0.0)
    expert, reported = SteppingExpert(0.1, 0.2, 0.3), list[float]()
    follower = ProgressFollower(expert, "call", lambda fraction, _: reported.append(fraction))  # type: ignore[arg-type]  # as much of a stub as is used
    async with asyncio.timeout(5):
        await expert.sent_all.wait()
        assert expert.followed == ["call"]
        assert reported == [0.1]
        follower.stop()
        await expert.cancelled.wait()


async def test_short_call_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.infer_call.PROGRESS_AFTER_SECONDS", 0.0)
    ended, later = SteppingExpert(), SteppingExpert()
    ProgressFollower(ended, "ended", lambda *_: None).stop()  # type: ignore[arg-type]  # as above
    follower = ProgressFollower(later, "later", lambda *_: None)  # type: ignore[arg-type]  # as above
    async with asyncio.timeout(5):
        await later.sent_all.wait()
    follower.stop()
    assert not ended.followed
