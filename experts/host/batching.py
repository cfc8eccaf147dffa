"""The calls of one model: how many it takes, and the thread on which they run.

Calls run one after the other as they come; those whose caller has gone are left out.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from experts.host.handler import Call, Handler
from experts.host.threads import Threads
from services.runtime.errors import ModelFailed, Overloaded

SHORTEST_WAIT, LONGEST_WAIT = 0.1, 30.0
"""Seconds after which a refused caller may be told to come back."""


class Queue:
    """Where the calls of one model wait for its thread."""

    def __init__(self, model_id: str, *, limit: int) -> None:
        self.thread = Threads(model_id)
        """For loading too: an engine may care on which thread it lives."""
        self._model_id = model_id
        self._limit = limit
        self._present = 0
        self._running = 0

    @property
    def running(self) -> int:
        """Calls that the thread is at, even if nobody waits for them any more."""
        return self._running

    @property
    def waiting(self) -> int:
        return max(0, self._present - self._running)

    @property
    def quiet(self) -> bool:
        """Whether there is one call at most, and the thread has nothing to do."""
        return self._present <= 1 and not self._running

    @contextmanager
    def place(self, typical_seconds: float) -> Iterator[None]:
        """A place for one call as long as the block lasts.

        Args:
            typical_seconds: how long a call takes, to tell those who are refused when to come back.

        Raises:
            Overloaded: the limit is reached.
        """
        if self._present >= self._limit:
            delay = min(max(self._present * typical_seconds, SHORTEST_WAIT), LONGEST_WAIT)
            raise Overloaded(
                f"{self._present} calls wait for {self._model_id} already",
                remedy="try again later, or let the operator run another replica or raise EXPERT_MAX_WAITING",
                retry_after=timedelta(seconds=delay),
            )
        self._present += 1
        try:
            yield
        finally:
            self._present -= 1

    def run_here(self, handler: Handler, item: Any, call: Call) -> Any:
        """The model's raw result for one item; to be called on the thread."""
        if call.cancelled:
            raise asyncio.CancelledError  # nobody will hear of it
        self._running += 1
        try:
            raws = handler.run([item], call)
        finally:
            self._running -= 1
        if len(raws) != 1:
            raise ModelFailed(
                f"model {self._model_id} gave {len(raws)} results for one input",
                remedy="report it to whoever made the expert",
            )
        return raws[0]
