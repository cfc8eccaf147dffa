"""Event streams that continue across connections."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import httpx

from gateway.client import calls
from gateway.client.calls import Call
from gateway.client.connection import STREAM_TRIES, RetryPolicy
from gateway.client.errors import NoGateway, Unreachable, refusal
from gateway.client.models import Batch, BatchResult, Event, Run

T = TypeVar("T")

PROBLEM = "problem"


class ProblemEvent(Exception):
    """A permanent error that the gateway sent in a stream."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__()
        self.content = content


class Reader(Generic[T]):
    """Parses lines to events. Ignores comments, and incomplete events of a broken stream.

    Args:
        make: converts the JSON of an event.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name, self._data = "", ""

    def take(self, line: str) -> T | None:
        """Parses a line; returns the event that it completes, if any.

        Raises:
            Problem: the gateway sent an error instead of an event.
            NoGateway: the data is not a valid event.
        """
        key, _, value = line.partition(":")
        if key == "event":
            self._name = value.strip()
        elif key == "data":
            self._data += value
        elif not line and self._data:
            name, data, self._name, self._data = self._name, self._data, "", ""
            return self._event(name, data)
        return None

    def _event(self, name: str, data: str) -> T:
        if name == PROBLEM:
            raise ProblemEvent(read(data, dict))
        return read(data, self._make)


def read(line: str, make: Callable[[Any], T]) -> T:
    """Parses a line of JSON.

    Raises:
        NoGateway: the JSON is invalid or has another type.
    """
    try:
        return make(json.loads(line))
    except (ValueError, LookupError, TypeError) as error:
        raise NoGateway(
            "received data that is not an event of a gateway", code="NO_GATEWAY", remedy="check the URL"
        ) from error


T_co = TypeVar("T_co", covariant=True)

ENDED, APPROVAL_REQUESTED = "run_ended", "approval_requested"

ALL_SEEN = 204
"""Status of a reply without a stream, because all events were received."""


class EventSource(Protocol[T_co]):
    """State of a stream across connections."""

    is_finished: bool
    """Whether the last event was received."""

    def call(self) -> Call[Any]:
        """The request of the next connection."""

    def begin_stream(self, reply: httpx.Response) -> None:
        """Starts reading a reply.

        Raises:
            NoGateway: the reply is not an event stream.
        """

    def take(self, line: str) -> T_co | None:
        """Reads a line; returns the event that it completes, unless it was received before.

        Raises:
            HuggingGPTError: a permanent error.
        """

    def end_stream(self) -> None:
        """The reply has ended."""

    def pause(self, error: Exception | None) -> float:
        """Seconds to wait before reconnecting; `error` is None if the stream ended early.

        Raises:
            HuggingGPTError: the stream is not retried.
        """


class Stream(Generic[T]):
    """Events of one connection.

    Args:
        reply: the streaming reply.
        make: converts the JSON of an event.
        url: URL of the gateway, for messages.

    Raises:
        NoGateway: the reply is not an event stream.
    """

    def __init__(self, reply: httpx.Response, make: Callable[[Any], T], url: str) -> None:
        if not reply.headers.get("content-type", "").startswith(calls.STREAM):
            raise calls.not_a_gateway(url)
        self._reply, self._reader = reply, Reader(make)

    def take(self, line: str) -> T | None:
        """Reads a line; returns the event that it completes, and raises a problem event as an error."""
        try:
            return self._reader.take(line)
        except ProblemEvent as problem:
            raise refusal(self._reply, problem.content) from None


class RunFollower:
    """Events of a run, each once, with reconnects.

    Args:
        url: URL of the gateway, for messages.
        run_id: id of the run; "" if `start` creates it.
        after: number of the last event received before.
        start: call that creates the run and streams its events.
    """

    def __init__(self, url: str, run_id: str = "", after: int = 0, start: Call[Run] | None = None) -> None:
        self.run_id = run_id
        self.is_finished = False
        self._url = url
        self._sequence = after
        self._start = start
        self._stream: Stream[Event] | None = None
        self._start_retry_policy = RetryPolicy(url)
        self._retry_policy = RetryPolicy(url, tries=STREAM_TRIES, retry_at_once=True)

    def call(self) -> "Call[Run] | Call[None]":
        """The request of the next connection."""
        if self._start and not self.run_id:
            return self._start
        return calls.events(self.run_id, self._sequence)

    def begin_stream(self, reply: httpx.Response) -> None:
        """Starts reading a reply; a reply without content means that all events were received.

        Raises:
            NoGateway: the reply is not an event stream.
        """
        self.run_id = reply.headers.get("x-run-id", self.run_id)
        self.is_finished = reply.status_code == ALL_SEEN
        self._stream = None if self.is_finished else Stream(reply, Event.of, self._url)

    def take(self, line: str) -> Event | None:
        """Reads a line; returns a new event."""
        event = self._stream.take(line) if self._stream else None
        if event is None or event.sequence <= self._sequence:
            return None
        self.run_id, self._sequence = event.run_id, event.sequence
        self.is_finished = event.kind == ENDED
        self._retry_policy.reset()
        return event

    def end_stream(self) -> None:
        """The connection was lost, unless the run has ended."""

    def pause(self, error: Exception | None) -> float:
        """Seconds to wait before reconnecting.

        Raises:
            HuggingGPTError: the stream is not retried.
        """
        if not self.run_id:
            return self._start_retry_policy.pause(error)
        try:
            return self._retry_policy.pause(error)
        except Unreachable as error_:
            error_.remedy = f"the run continues; read it at {self._url}/v1/runs/{self.run_id}"
            raise


def may_wait(event: Event) -> bool:
    """Whether the event may be the last before an action of the client: an end, or a request for approval."""
    return event.kind in (ENDED, APPROVAL_REQUESTED)


def is_settled(run: Run) -> bool:
    return run.is_over or run.is_waiting


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
            error_.remedy = (
                f"read it at {self._url}/v1/pipeline-batches/{self._batch_id} when the gateway is reachable again"
            )
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
