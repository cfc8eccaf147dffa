"""A run's events as they are read, each once, even when the orchestrator that sends them goes away."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from gateway.public_view import make_public
from gateway.service_calls import ABSENT, absent, told
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.errors import Unavailable

Call = Any
"""A streaming call of the orchestrator's; the stubs cannot say what its read gives at the end."""

Reopen = Callable[[str, int], Call]

FIRST_SECONDS = 10.0
"""How long acceptance may take."""

MAX_LOSSES = 10
"""Losses in a row, without an event between them, after which the feed gives up."""

_LONGEST_PAUSE = 2.0


class Line:
    """A stream of the orchestrator's, and the ones that follow on it where it is lost.

    Args:
        call: the first one.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._losses = 0
        self._stopped = False

    def stop(self) -> None:
        """Ends it; who reads it gets Unavailable."""
        self._stopped = True
        self._call.cancel()

    async def read(self, *, goes_on: bool = True) -> Any:
        """What comes next; nothing of the message's type if the stream is lost.

        Args:
            goes_on: another stream can follow on this one.

        Raises:
            ServiceError: none will.
        """
        if self._stopped:
            raise stopping()
        try:
            return await self._call.read()
        except grpc.aio.AioRpcError as error:
            if error.code() in ABSENT and goes_on and self._losses < MAX_LOSSES:
                return None
            raise told(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._stopped and task and not task.cancelling():
                raise stopping() from None
            raise

    def well(self) -> None:
        """What came was something new."""
        self._losses = 0

    async def follow(self, opened: Callable[[], Call]) -> None:
        """Has another stream follow on one that is lost, after a pause.

        Raises:
            Unavailable: too many were lost, or it was stopped.
        """
        if self._losses >= MAX_LOSSES:
            raise absent()
        self._losses += 1
        await asyncio.sleep(min(0.05 * (1 << self._losses), _LONGEST_PAUSE))
        if self._stopped:
            raise stopping()
        self._call = opened()


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
        self._line = Line(call)
        self._reopen = reopen
        self._first: RunEvent | None = None

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
                self.run_id, self.sequence = event.run_id, event.sequence
                self._line.well()
                self.ended = event.HasField("run_ended")
                return event
        return None

    def stop(self) -> None:
        """Ends the stream, not the run; who reads it gets Unavailable."""
        self._line.stop()

    async def _next(self) -> RunEvent | None:
        """None if the stream is lost."""
        event = await self._line.read(goes_on=bool(self.run_id))
        if not isinstance(event, RunEvent):
            return None
        make_public(event)
        return event

    async def _continue(self) -> None:
        if not self.run_id:
            raise absent()
        await self._line.follow(lambda: self._reopen(self.run_id, self.sequence))


def stopping() -> Unavailable:
    """What the reader of a stream that was stopped gets."""
    return Unavailable("the gateway is stopping", remedy="watch again from the last event seen")
