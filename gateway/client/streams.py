"""A place in what a gateway tells bit by bit, kept over all the connections that it takes."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import httpx

from gateway.client import calls
from gateway.client.calls import Call
from gateway.client.errors import Unreachable, refusal
from gateway.client.events import Problem, Reader
from gateway.client.models import Event, Run
from gateway.client.retry import STREAM_TRIES, Patience

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ENDED, ASKED = "run_ended", "approval_requested"

ALL_SEEN = 204
"""Status of an answer instead of a stream that would be empty."""


class Place(Protocol[T_co]):
    """How far one has come."""

    over: bool
    """Nothing follows."""

    def call(self) -> Call[Any]:
        """What to ask for now."""

    def opened(self, reply: httpx.Response) -> None:
        """A stream begins.

        Raises:
            NoGateway: it is something else.
        """

    def take(self, line: str) -> T_co | None:
        """What a line completes, if that was not seen before.

        Raises:
            HuggingGPTError: nothing can follow.
        """

    def closed(self) -> None:
        """The stream has ended by itself."""

    def pause(self, error: Exception | None) -> float:
        """Seconds until it is tried again; None is a stream that ended too early.

        Raises:
            HuggingGPTError: it is not to be.
        """


class Stream(Generic[T]):
    """The events that one connection tells.

    Args:
        reply: with which it began.
        make: an event of its JSON.
        url: the gateway's, for messages.

    Raises:
        NoGateway: it is something else.
    """

    def __init__(self, reply: httpx.Response, make: Callable[[Any], T], url: str) -> None:
        if not reply.headers.get("content-type", "").startswith(calls.STREAM):
            raise calls.stranger(url)
        self._reply, self._reader = reply, Reader(make)

    def take(self, line: str) -> T | None:
        """The event that a line completes; a problem that came instead of one is raised."""
        try:
            return self._reader.take(line)
        except Problem as problem:
            raise refusal(self._reply, problem.content) from None


class Following:
    """The events of a run, each once: what comes twice is skipped, and a break is gone over.

    Args:
        url: the gateway's, for messages.
        run_id: the run; "" if start makes it.
        after: the last number already seen.
        start: makes the run and streams it.
    """

    def __init__(self, url: str, run_id: str = "", after: int = 0, start: Call[Run] | None = None) -> None:
        self.run_id = run_id
        self.over = False
        self._url = url
        self._sequence = after
        self._start = start
        self._stream: Stream[Event] | None = None
        self._starting = Patience(url)
        self._patience = Patience(url, tries=STREAM_TRIES, hasty=True)

    def call(self) -> "Call[Run] | Call[None]":
        """What to ask for now."""
        if self._start and not self.run_id:
            return self._start
        return calls.events(self.run_id, self._sequence)

    def opened(self, reply: httpx.Response) -> None:
        """A stream begins; or, without one, all was seen.

        Raises:
            NoGateway: it is something else.
        """
        self.run_id = reply.headers.get("x-run-id", self.run_id)
        self.over = reply.status_code == ALL_SEEN
        self._stream = None if self.over else Stream(reply, Event.of, self._url)

    def take(self, line: str) -> Event | None:
        """An event that was not seen before."""
        event = self._stream.take(line) if self._stream else None
        if event is None or event.sequence <= self._sequence:
            return None
        self.run_id, self._sequence = event.run_id, event.sequence
        self.over = event.kind == ENDED
        self._patience.restored()
        return event

    def closed(self) -> None:
        """It was cut, unless the run is over."""

    def pause(self, error: Exception | None) -> float:
        """Seconds until it is tried again.

        Raises:
            HuggingGPTError: it is not to be.
        """
        if not self.run_id:
            return self._starting.pause(error)
        try:
            return self._patience.pause(error)
        except Unreachable as given_up:
            given_up.remedy = f"the run goes on; it is at {self._url}/v1/runs/{self.run_id}"
            raise


def settled(event: Event) -> bool:
    """Whether nothing more may happen by itself: the run has ended or wants approval, which it may have by now."""
    return event.kind in (ENDED, ASKED)


def is_settled(run: Run) -> bool:
    return run.is_over or run.is_waiting
