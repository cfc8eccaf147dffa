"""Streams of batches across connections."""

from collections.abc import Sequence

import httpx

from gateway.client.calls import Call
from gateway.client.errors import Unreachable
from gateway.client.events import read
from gateway.client.pipelines import calls
from gateway.client.pipelines.models import Batch, BatchResult
from gateway.client.retry import STREAM_TRIES, RetryPolicy
from gateway.client.streams import ALL_SEEN, Stream


class BatchFollower:
    """States of a batch, whenever they change, up to its end.

    Args:
        url: URL of the gateway, for messages.
        batch_id: id of the batch.
    """

    def __init__(self, url: str, batch_id: str) -> None:
        self.is_finished = False
        self._url, self._batch_id = url, batch_id
        self._last: Batch | None = None
        self._stream: Stream[Batch] | None = None
        self._retry_policy = RetryPolicy(url, tries=STREAM_TRIES, retry_at_once=True)

    def call(self) -> Call[None]:
        return calls.batch_events(self._batch_id)

    def begin_stream(self, reply: httpx.Response) -> None:
        self.is_finished = reply.status_code == ALL_SEEN
        self._stream = None if self.is_finished else Stream(reply, Batch.model_validate, self._url)

    def take(self, line: str) -> Batch | None:
        batch = self._stream.take(line) if self._stream else None
        if batch is None or batch == self._last:
            return None
        self._last, self.is_finished = batch, batch.is_over
        self._retry_policy.reset()
        return batch

    def end_stream(self) -> None:
        """The connection was lost, unless the batch has ended."""

    def pause(self, error: Exception | None) -> float:
        try:
            return self._retry_policy.pause(error)
        except Unreachable as error_:
            error_.remedy = f"read it at {self._url}/v1/batches/{self._batch_id} when the gateway is reachable again"
            raise


class ResultsReader:
    """Results of the items of a batch, each once, in order.

    Args:
        url: URL of the gateway, for messages.
        batch_id: id of the batch.
        states: states of the items; empty for all.
    """

    def __init__(self, url: str, batch_id: str, states: Sequence[str]) -> None:
        self.is_finished = False
        self._batch_id, self._states = batch_id, states
        self._index = 0
        self._retry_policy = RetryPolicy(url)

    def call(self) -> Call[None]:
        return calls.results(self._batch_id, self._states)

    def begin_stream(self, _: httpx.Response) -> None:
        """Restarts from the first result; results received before are skipped."""

    def take(self, line: str) -> BatchResult | None:
        result = read(line, BatchResult.model_validate) if line else None
        if result is None or result.index <= self._index:
            return None
        self._index = result.index
        self._retry_policy.reset()
        return result

    def end_stream(self) -> None:
        self.is_finished = True

    def pause(self, error: Exception | None) -> float:
        return self._retry_policy.pause(error)
