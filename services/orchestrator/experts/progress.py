"""Following a call of an expert that takes long."""

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
"""From when on a call is followed; most have ended by then, and cost no more than a timer."""

EVERY_SECONDS = 0.5
"""Steps that come sooner after the last are passed over: each one told is kept in the journal."""

LONGEST_SECONDS = 3600.0

Tell = Callable[[float, str], None]
"""Takes fraction and message."""


class Following:
    """Tells how far a call is, until it is stopped; what cannot be followed goes on unfollowed.

    Args:
        expert: who runs it.
        call_id: by which the expert knows it.
        tell: is told, twice a second at most.
    """

    def __init__(self, expert: "ExpertServiceAsyncStub", call_id: str, tell: Tell) -> None:
        self._expert, self._call_id, self._tell = expert, call_id, tell
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
                    self._tell(step.fraction, step.message)
