"""Updates of a batch from the orchestrator, across reconnections."""

from collections.abc import Callable

from gateway.run_stream import Call, ReconnectingStream
from protos.hugginggpt.v1.batch_pb2 import Batch


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
