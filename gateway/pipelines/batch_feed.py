"""A batch as it goes on, also when the orchestrator that tells of it goes away."""

from collections.abc import Callable

from gateway.run_stream import Call, Line
from protos.hugginggpt.v1.batch_pb2 import Batch


class BatchFeed:
    """Reads one stream after the other until the batch has ended.

    Args:
        opened: a stream of the batch.
    """

    def __init__(self, opened: Callable[[], Call]) -> None:
        self.ended = False
        self._opened = opened
        self._line = Line(opened())

    async def read(self) -> Batch | None:
        """The batch as it now stands; None after its end.

        Raises:
            ServiceError: the stream cannot be continued.
        """
        while not self.ended:
            batch = await self._line.read()
            if isinstance(batch, Batch):
                self._line.well()
                self.ended = batch.HasField("end_time")
                return batch
            await self._line.follow(self._opened)
        return None

    def stop(self) -> None:
        """Ends the stream, not the batch; who reads it gets Unavailable."""
        self._line.stop()
