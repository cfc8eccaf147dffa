"""Throttle of run requests: rejects in the gateway what the orchestrator would refuse."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from math import exp

from services.common.errors import Overloaded

MEMORY_SECONDS = 2.0
"""Time constant in seconds with which earlier outcomes decay."""

PROBE_REFUSALS, PROBE_SHARE = 10.0, 0.2
"""Refusals of the orchestrator that are tolerated, plus a share per accepted run: they probe for free capacity."""

MAX_WAITING, MAX_WAIT_SECONDS = 10, 2.0
"""No request is admitted while more than MAX_WAITING requests have waited longer than MAX_WAIT_SECONDS."""

RETRY_AFTER = timedelta(seconds=1)


@dataclass
class _Outcomes:
    """Exponentially decaying counts of a tenant's accepted and refused runs."""

    at: float
    accepted: float = 0.0
    refused: float = 0.0

    def add_refusal(self, now: float) -> None:
        """Counts a refusal; the count is capped, so that a burst of refusals does not block the tenant for long."""
        self.decay(now)
        if not self.is_saturated:
            self.refused += 1

    def decay(self, now: float) -> None:
        remaining = exp((self.at - now) / MEMORY_SECONDS)
        self.at, self.accepted, self.refused = now, self.accepted * remaining, self.refused * remaining

    @property
    def is_saturated(self) -> bool:
        return self.refused > PROBE_REFUSALS + PROBE_SHARE * self.accepted


class Throttle:
    """Rejects runs of tenants whose runs the orchestrator has recently refused, without calling it again.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outcomes: dict[str, _Outcomes] = {}
        self._waiting: dict[object, float] = {}

    @contextmanager
    def admit(self, tenant: str) -> Iterator[None]:
        """Admits a request to the orchestrator, sent in the block, and records its outcome.

        Raises:
            Overloaded: too many of the tenant's runs were refused recently, or acceptance is stalled.
        """
        outcomes = self._current(tenant)
        if self._is_stalled:
            remedy = "try again soon; if it persists, check the orchestrator and its database"
            raise Overloaded("the orchestrator is slow to accept runs", remedy=remedy, retry_after=RETRY_AFTER)
        if outcomes and outcomes.is_saturated:
            raise Overloaded("too many active runs", remedy="try again soon", retry_after=RETRY_AFTER)
        try:
            with self._waiting_request():
                yield
        except Overloaded as error:
            if error.reason == Overloaded.reason:
                now = self._clock()
                self._outcomes.setdefault(tenant, _Outcomes(now)).add_refusal(now)
            raise
        if tenant in self._outcomes:
            self._outcomes[tenant].accepted += 1

    @contextmanager
    def _waiting_request(self) -> Iterator[None]:
        request = object()
        self._waiting[request] = self._clock()
        try:
            yield
        finally:
            del self._waiting[request]

    @property
    def _is_stalled(self) -> bool:
        since = next(islice(self._waiting.values(), MAX_WAITING, None), None)
        return since is not None and self._clock() - since > MAX_WAIT_SECONDS

    def _current(self, tenant: str) -> _Outcomes | None:
        """Returns the decayed counts of a tenant; drops tenants without recent refusals."""
        outcomes = self._outcomes.get(tenant)
        if not outcomes:
            return None
        outcomes.decay(self._clock())
        if outcomes.refused < 1 / PROBE_REFUSALS:
            del self._outcomes[tenant]
        return outcomes
