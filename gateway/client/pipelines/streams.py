"""Places in what a gateway tells of a batch."""

from collections.abc import Sequence

import httpx

from gateway.client.calls import Call
from gateway.client.errors import Unreachable
from gateway.client.events import read
from gateway.client.pipelines import calls
from gateway.client.pipelines.models import Batch, BatchResult
from gateway.client.retry import STREAM_TRIES, Patience
from gateway.client.streams import ALL_SEEN, Stream


class Watching:
    """A batch as it stands, whenever that has changed; the last one is over.

    Args:
        url: the gateway's, for messages.
        batch_id: the batch.
    """

    def __init__(self, url: str, batch_id: str) -> None:
        self.over = False
        self._url, self._batch_id = url, batch_id
        self._last: Batch | None = None
        self._stream: Stream[Batch] | None = None
        self._patience = Patience(url, tries=STREAM_TRIES, hasty=True)

    def call(self) -> Call[None]:
        return calls.batch_events(self._batch_id)

    def opened(self, reply: httpx.Response) -> None:
        self.over = reply.status_code == ALL_SEEN
        self._stream = None if self.over else Stream(reply, Batch.model_validate, self._url)

    def take(self, line: str) -> Batch | None:
        batch = self._stream.take(line) if self._stream else None
        if batch is None or batch == self._last:
            return None
        self._last, self.over = batch, batch.is_over
        self._patience.restored()
        return batch

    def closed(self) -> None:
        """It was cut, unless the batch is over."""

    def pause(self, error: Exception | None) -> float:
        try:
            return self._patience.pause(error)
        except Unreachable as given_up:
            given_up.remedy = f"it is at {self._url}/v1/batches/{self._batch_id} once a gateway is there again"
            raise


class Results:
    """What became of the items of a batch, each once, in their order.

    Args:
        url: the gateway's, for messages.
        batch_id: the batch.
        states: only items in these; empty means all.
    """

    def __init__(self, url: str, batch_id: str, states: Sequence[str]) -> None:
        self.over = False
        self._batch_id, self._states = batch_id, states
        self._index = 0
        self._patience = Patience(url)

    def call(self) -> Call[None]:
        return calls.results(self._batch_id, self._states)

    def opened(self, _: httpx.Response) -> None:
        """It begins anew."""

    def take(self, line: str) -> BatchResult | None:
        result = read(line, BatchResult.model_validate) if line else None
        if result is None or result.index <= self._index:
            return None
        self._index = result.index
        self._patience.restored()
        return result

    def closed(self) -> None:
        self.over = True

    def pause(self, error: Exception | None) -> float:
        return self._patience.pause(error)
