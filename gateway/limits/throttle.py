"""Refuses at the door what would be refused behind it: who has no place left keeps its time for the runs it has."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from math import exp

from services.common.errors import Overloaded

MEMORY_SECONDS = 2.0
"""What was longer ago hardly counts."""

REFUSED, SHARE = 10.0, 0.2
"""Refusals within the memory that are sought behind the door, beside so many for each run accepted: by them it is known
that there are places again."""

WAITING, WAITED_SECONDS = 10, 2.0
"""More runs that have waited longer to be accepted, and no more are let in to wait with them."""

RETRY_AFTER = timedelta(seconds=1)


@dataclass
class _Tally:
    """What became of a tenant's runs, older ones counting less and less."""

    at: float
    accepted: float = 0.0
    refused: float = 0.0

    def refuse(self, now: float) -> None:
        """One more was refused; what would be more than enough is forgotten, or it would hold for long."""
        self.fade(now)
        if not self.full:
            self.refused += 1

    def fade(self, now: float) -> None:
        left = exp((self.at - now) / MEMORY_SECONDS)
        self.at, self.accepted, self.refused = now, self.accepted * left, self.refused * left

    @property
    def full(self) -> bool:
        return self.refused > REFUSED + SHARE * self.accepted


class Throttle:
    """Knows of each tenant how often its runs were refused of late.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tallies: dict[str, _Tally] = {}
        self._waiting: dict[object, float] = {}

    @contextmanager
    def asking(self, tenant: str) -> Iterator[None]:
        """Asks for a run in the block, which raises what comes of it.

        Raises:
            Overloaded: the tenant's runs are refused so often, or so many wait so long, that this one is not asked for.
        """
        tally = self._fresh(tenant)
        if self._stuck:
            remedy = "try again soon; if it lasts, see whether the orchestrator and its database answer"
            raise Overloaded("runs wait long to be accepted", remedy=remedy, retry_after=RETRY_AFTER)
        if tally and tally.full:
            raise Overloaded("too many runs are under way", remedy="try again soon", retry_after=RETRY_AFTER)
        try:
            with self._counted():
                yield
        except Overloaded as error:
            if error.reason == Overloaded.reason:
                now = self._clock()
                self._tallies.setdefault(tenant, _Tally(now)).refuse(now)
            raise
        if tenant in self._tallies:
            self._tallies[tenant].accepted += 1

    @contextmanager
    def _counted(self) -> Iterator[None]:
        mine = object()
        self._waiting[mine] = self._clock()
        try:
            yield
        finally:
            del self._waiting[mine]

    @property
    def _stuck(self) -> bool:
        since = next(islice(self._waiting.values(), WAITING, None), None)
        return since is not None and self._clock() - since > WAITED_SECONDS

    def _fresh(self, tenant: str) -> _Tally | None:
        """As of now; those of whom no refusal is remembered are forgotten."""
        tally = self._tallies.get(tenant)
        if not tally:
            return None
        tally.fade(self._clock())
        if tally.refused < 1 / REFUSED:
            del self._tallies[tenant]
        return tally
