"""A batch as server-sent events: event is batch, data the batch in JSON; only its last one has an id."""

from gateway.http.sse import RETRY, Stream, last_words, line
from gateway.json_encoder import encode
from gateway.pipelines.batch_feed import BatchFeed
from protos.hugginggpt.v1.batch_pb2 import Batch
from services.common.errors import ServiceError


def ending(batch: Batch) -> str:
    """The id of the last event: another one if the batch is let run again."""
    return str(batch.end_time.ToMicroseconds())


def framed(batch: Batch) -> bytes:
    id_ = f"id: {ending(batch)}\n".encode() if batch.HasField("end_time") else b""
    return b"%sevent: batch\ndata: %s\n\n" % (id_, line(encode(batch)))


class BatchStream(Stream):
    """Sends a batch whenever it has changed, and lets go of the feed."""

    greeting = RETRY

    def __init__(self, feed: BatchFeed) -> None:
        super().__init__()
        self._feed = feed

    async def close(self) -> None:
        self._feed.stop()

    async def next(self) -> tuple[bytes, bool]:
        """How the batch stands; a stream that is cut has no event with an id."""
        try:
            batch = await self._feed.read()
        except ServiceError as error:
            return last_words(error), True
        return (framed(batch), self._feed.ended) if batch else (b"", True)
