"""Event streams of runs and batches, which survive a lost connection to the orchestrator."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from gateway.core.service_calls import UNAVAILABLE_CODES, service_error, unavailable
from protos.hugginggpt.v1.batch_pb2 import Batch
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.errors import Unavailable

Call = Any
"""A gRPC streaming call of the orchestrator; the stubs do not type the end of stream."""

Reopen = Callable[[str, int], Call]

ACCEPT_TIMEOUT_SECONDS = 10.0
"""Timeout of a run's acceptance, in seconds."""

MAX_CONSECUTIVE_LOSSES = 10
"""Consecutive reconnections without a new message after which reading fails."""

_MAX_PAUSE_SECONDS = 2.0


class ReconnectingStream:
    """A gRPC stream that is reopened when its connection is lost.

    Args:
        call: the first stream.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._losses = 0
        self._stopped = False

    def stop(self) -> None:
        """Cancels the stream; readers get Unavailable."""
        self._stopped = True
        self._call.cancel()

    async def read(self, *, can_resume: bool = True) -> Any:
        """Reads the next message; returns None if the connection was lost, and the end-of-stream marker at the end.

        Args:
            can_resume: another stream can continue this one.

        Raises:
            ServiceError: the stream failed and cannot be continued.
        """
        if self._stopped:
            raise stopping_error()
        try:
            return await self._call.read()
        except grpc.aio.AioRpcError as error:
            if error.code() in UNAVAILABLE_CODES and can_resume and self._losses < MAX_CONSECUTIVE_LOSSES:
                return None
            raise service_error(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._stopped and task and not task.cancelling():
                raise stopping_error() from None
            raise

    def reset_losses(self) -> None:
        """Resets the count of losses after a new message."""
        self._losses = 0

    async def reconnect(self, open_stream: Callable[[], Call]) -> None:
        """Replaces a lost stream by a new one after a pause.

        Raises:
            Unavailable: too many consecutive losses, or the stream was stopped.
        """
        if self._losses >= MAX_CONSECUTIVE_LOSSES:
            raise unavailable()
        self._losses += 1
        await asyncio.sleep(min(0.05 * (1 << self._losses), _MAX_PAUSE_SECONDS))
        if self._stopped:
            raise stopping_error()
        self._call = open_stream()


class RunEventFeed:
    """Events of one run, over as many streams as necessary, until the run ends.

    Args:
        call: the first stream.
        reopen: opens a stream of the events of a run after a sequence number.
        run_id: id of the run; empty for a new run until its first event.
        after: sequence number of the last event received.
    """

    def __init__(self, call: Call, reopen: Reopen, run_id: str = "", after: int = 0) -> None:
        self.run_id = run_id
        self.sequence = after
        self.ended = False
        self._stream = ReconnectingStream(call)
        self._reopen = reopen
        self._first: RunEvent | None = None

    async def wait_accepted(self) -> None:
        """Waits for the first event, which the next `read` returns.

        Raises:
            ServiceError: the run was rejected, or the orchestrator did not respond in time.
        """
        try:
            async with asyncio.timeout(ACCEPT_TIMEOUT_SECONDS):
                self._first = await self.read()
        except TimeoutError:
            raise unavailable() from None

    async def read(self) -> RunEvent | None:
        """Returns the next event; None after the last one.

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
                self._stream.reset_losses()
                self.ended = event.HasField("run_ended")
                return event
        return None

    def stop(self) -> None:
        """Stops the feed, not the run; readers get Unavailable."""
        self._stream.stop()

    async def _next(self) -> RunEvent | None:
        """Reads one message; None if the connection was lost."""
        event = await self._stream.read(can_resume=bool(self.run_id))
        return event if isinstance(event, RunEvent) else None

    async def _continue(self) -> None:
        if not self.run_id:
            raise unavailable()
        await self._stream.reconnect(lambda: self._reopen(self.run_id, self.sequence))


def stopping_error() -> Unavailable:
    """Error for readers of a stopped stream."""
    return Unavailable("the gateway is shutting down", remedy="resume the stream after the last event received")


class BatchFeed:
    """Updates of one batch, over as many streams as necessary, until the batch ends.

    Args:
        open_stream: opens a stream of the batch.
    """

    def __init__(self, open_stream: Callable[[], Call]) -> None:
        self.ended = False
        self._open_stream = open_stream
        self._stream = ReconnectingStream(open_stream())

    async def read(self) -> Batch | None:
        """Returns the current state of the batch; None after its end.

        Raises:
            ServiceError: the stream cannot be continued.
        """
        while not self.ended:
            batch = await self._stream.read()
            if isinstance(batch, Batch):
                self._stream.reset_losses()
                self.ended = batch.HasField("end_time")
                return batch
            await self._stream.reconnect(self._open_stream)
        return None

    def stop(self) -> None:
        """Stops the feed, not the batch; readers get Unavailable."""
        self._stream.stop()
