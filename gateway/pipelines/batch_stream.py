"""Batch updates as server-sent events: event is batch, data the batch as JSON; only the last event has an id."""

from gateway.http.sse import RETRY, Stream, closing_frame, single_line_json
from gateway.json_encoder import encode
from gateway.pipelines.batch_feed import BatchFeed
from protos.hugginggpt.v1.batch_pb2 import Batch
from services.common.errors import ServiceError


def last_event_id(batch: Batch) -> str:
    """Id of the batch's last event; differs for each round of a resumed batch."""
    return str(batch.end_time.ToMicroseconds())


def batch_event_frame(batch: Batch) -> bytes:
    id_ = f"id: {last_event_id(batch)}\n".encode() if batch.HasField("end_time") else b""
    return b"%sevent: batch\ndata: %s\n\n" % (id_, single_line_json(encode(batch)))


class BatchStream(Stream):
    """Streams a batch whenever it changes, and stops the feed at the end."""

    greeting = RETRY

    def __init__(self, feed: BatchFeed) -> None:
        super().__init__()
        self._feed = feed

    async def close(self) -> None:
        self._feed.stop()

    async def next(self) -> tuple[bytes, bool]:
        """Returns the next update; an interrupted stream ends without an event that has an id."""
        try:
            batch = await self._feed.read()
        except ServiceError as error:
            return closing_frame(error), True
        return (batch_event_frame(batch), self._feed.ended) if batch else (b"", True)
