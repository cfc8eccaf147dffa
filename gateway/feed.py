"""A run's events as they are read, each once, even when the orchestrator that sends them goes away."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from gateway.backends import ABSENT, absent, told
from gateway.public import make_public
from protos.hugginggpt.v1.types_pb2 import RunEvent
from services.runtime.errors import Unavailable

Call = Any
"""A streaming call of the orchestrator's; the stubs cannot say what its read gives at the end."""

Reopen = Callable[[str, int], Call]

FIRST_SECONDS = 10.0
"""How long acceptance may take."""

MAX_LOSSES = 10
"""Losses in a row, without an event between them, after which the feed gives up."""

_LONGEST_PAUSE = 2.0


class Feed:
    """Reads one stream after the other until the run has ended.

    Args:
        call: the first stream.
        reopen: given run id and last number, a stream of what follows.
        run_id: empty until the first event tells.
        after: last number already seen.
    """

    def __init__(self, call: Call, reopen: Reopen, run_id: str = "", after: int = 0) -> None:
        self.run_id = run_id
        self.sequence = after
        self.ended = False
        self._call = call
        self._reopen = reopen
        self._first: RunEvent | None = None
        self._losses = 0
        self._stopped = False

    async def accepted(self) -> None:
        """Waits for the first event; it stays to be read.

        Raises:
            ServiceError: the run was refused, or nobody answered.
        """
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                self._first = await self.read()
        except TimeoutError:
            raise absent() from None

    async def read(self) -> RunEvent | None:
        """The next event; None after the last one.

        Raises:
            ServiceError: the stream cannot be continued.
        """
        if self._first:
            first, self._first = self._first, None
            return first
        while not self.ended:
            event = await self._next()
            if event is None:
                await self._continue()
            elif event.sequence > self.sequence:
                self.run_id, self.sequence, self._losses = event.run_id, event.sequence, 0
                self.ended = event.HasField("run_ended")
                return event
        return None

    def stop(self) -> None:
        """Ends the stream, not the run; who reads it gets Unavailable."""
        self._stopped = True
        self._call.cancel()

    async def _next(self) -> RunEvent | None:
        """None if the stream is lost."""
        if self._stopped:
            raise stopping()
        try:
            event = await self._call.read()
        except grpc.aio.AioRpcError as error:
            if error.code() in ABSENT and self.run_id and self._losses < MAX_LOSSES:
                return None
            raise told(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._stopped and task and not task.cancelling():
                raise stopping() from None
            raise
        if not isinstance(event, RunEvent):
            return None
        make_public(event)
        return event

    async def _continue(self) -> None:
        if not self.run_id or self._losses >= MAX_LOSSES:
            raise absent()
        self._losses += 1
        await asyncio.sleep(pause(self._losses))
        if self._stopped:
            raise stopping()
        self._call = self._reopen(self.run_id, self.sequence)


def pause(losses: int) -> float:
    """Seconds to wait before the next stream is asked for."""
    return min(0.05 * (1 << losses), _LONGEST_PAUSE)


def stopping() -> Unavailable:
    """What the reader of a stream that was stopped gets."""
    return Unavailable("the gateway is stopping", remedy="watch again from the last event seen")
