"""Follows the progress of long calls."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from protos.hugginggpt.v1.expert_pb2 import ProgressRequest
from services.common import call_context

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceAsyncStub

AFTER_SECONDS = 2.0
"""Progress is followed after this time: most calls have ended by then, and cost only a timer."""

EVERY_SECONDS = 0.5
"""Shortest interval between reports; steps in between are dropped, since each report is written to the journal."""

LONGEST_SECONDS = 3600.0

Report = Callable[[float, str], None]
"""Takes fraction, from 0 to 1, and message."""


class ProgressFollower:
    """Reports the progress of one call until it is stopped; if progress is not available the call continues without.

    Args:
        expert: runs the call.
        call_id: the call's ID at the expert.
        report: called at most twice a second.
    """

    def __init__(self, expert: "ExpertServiceAsyncStub", call_id: str, report: Report) -> None:
        self._expert, self._call_id, self._report = expert, call_id, report
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(AFTER_SECONDS, self._start)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._follow(), name=f"progress-{self._call_id}")

    async def _follow(self) -> None:
        clock = asyncio.get_running_loop().time
        next_at = clock()
        request = ProgressRequest(call_ids=[self._call_id])
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for step in self._expert.Progress(request, metadata=call_context.metadata(), timeout=LONGEST_SECONDS):
                if clock() >= next_at:
                    next_at = clock() + EVERY_SECONDS
                    self._report(step.fraction, step.message)
