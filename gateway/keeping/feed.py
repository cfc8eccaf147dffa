"""A batch as it goes on, also when the orchestrator that tells of it goes away."""

import asyncio
from collections.abc import Callable

import grpc

from gateway.backends import ABSENT, absent, told
from gateway.feed import MAX_LOSSES, Call, pause, stopping
from protos.hugginggpt.v1.types_pb2 import Batch


class BatchFeed:
    """Reads one stream after the other until the batch has ended.

    Args:
        opened: a stream of the batch.
    """

    def __init__(self, opened: Callable[[], Call]) -> None:
        self.ended = False
        self._opened = opened
        self._call = opened()
        self._losses = 0
        self._stopped = False

    async def read(self) -> Batch | None:
        """The batch as it now stands; None after its end.

        Raises:
            ServiceError: the stream cannot be continued.
        """
        while not self.ended:
            if batch := await self._next():
                self._losses = 0
                self.ended = batch.HasField("ended")
                return batch
            await self._continue()
        return None

    def stop(self) -> None:
        """Ends the stream, not the batch; who reads it gets Unavailable."""
        self._stopped = True
        self._call.cancel()

    async def _next(self) -> Batch | None:
        """None if the stream is lost."""
        if self._stopped:
            raise stopping()
        try:
            batch = await self._call.read()
        except grpc.aio.AioRpcError as error:
            if error.code() in ABSENT and self._losses < MAX_LOSSES:
                return None
            raise told(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._stopped and task and not task.cancelling():
                raise stopping() from None
            raise
        return batch if isinstance(batch, Batch) else None

    async def _continue(self) -> None:
        if self._losses >= MAX_LOSSES:
            raise absent()
        self._losses += 1
        await asyncio.sleep(pause(self._losses))
        if self._stopped:
            raise stopping()
        self._call = self._opened()
