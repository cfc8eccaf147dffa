"""A place in the events of a run, kept over all the connections it takes."""

import httpx

from gateway.client import calls
from gateway.client.calls import Call
from gateway.client.errors import Refused, Unreachable, refusal
from gateway.client.events import Problem
from gateway.client.models import Event, Run
from gateway.client.patience import STREAM_TRIES, Patience

ENDED, ASKED = "run_ended", "approval_requested"

_ALL_SEEN = 204


class Following:
    """Each event once: what comes twice is skipped, and after a break it goes on with the one after the last.

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
        self.over = reply.status_code == _ALL_SEEN
        if not (self.over or reply.headers.get("content-type", "").startswith(calls.STREAM)):
            raise calls.stranger(self._url)

    def takes(self, event: Event) -> bool:
        """Whether it is new."""
        if event.sequence <= self._sequence:
            return False
        self.run_id, self._sequence = event.run_id, event.sequence
        self.over = event.kind == ENDED
        self._patience.restored()
        return True

    def pause(self, error: Exception | None) -> float:
        """Seconds until it is tried again; None is a stream that ended too early.

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


def told(problem: Problem, reply: httpx.Response) -> Refused:
    """A problem that came instead of an event."""
    return refusal(reply, problem.content)


def settled(event: Event) -> bool:
    """Whether nothing more may happen by itself: the run has ended or wants approval, which it may have by now."""
    return event.kind in (ENDED, ASKED)


def is_settled(run: Run) -> bool:
    return run.is_over or run.is_waiting
