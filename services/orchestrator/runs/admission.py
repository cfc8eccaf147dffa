"""How many runs may be under way here, and whose: what is beyond is refused at once."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common.errors import Overloaded
from services.orchestrator.runs.run_log import LiveRun

RETRY_AFTER = timedelta(seconds=1)

WAITING_SECONDS = 10.0
"""How long a tenant that was refused counts as one that wants a share."""

BEHIND_SECONDS = 5.0
"""Longest that a run waits to be kept before more are let in to wait behind it."""

BACKGROUND = 0.75
"""Of the memory for runs, what items of batches may fill: people find some left."""


class Admission:
    """Places for runs, shared between tenants: where places are short, those who have more than their share wait.

    Args:
        live: the runs under way.
        most_runs: places.
        most_bytes: what the events of all runs may take in memory.
        behind: seconds that a run has waited by now to be kept.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        live: Mapping[str, LiveRun],
        *,
        most_runs: int,
        most_bytes: int,
        behind: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live
        self._most_runs = most_runs
        self._most_bytes = most_bytes
        self._behind = behind
        self._clock = clock
        self._arriving: Counter[str] = Counter()
        self._refused: dict[str, float] = {}

    @property
    def free(self) -> int:
        """Places left."""
        return max(0, self._most_runs - sum(map(_counts, self._live.values())) - self._arriving.total())

    @property
    def people(self) -> bool:
        """Whether a run for which somebody waits is under way, or about to be."""
        return bool(self._arriving) or any(run.caller.priority != PRIORITY_BATCH for run in self._live.values())

    @property
    def crowded(self) -> bool:
        """Whether the runs under way take as much memory as items of batches may add to."""
        return self._bytes >= self._most_bytes * BACKGROUND

    @contextmanager
    def place(self, tenant: str, size: int) -> Iterator[None]:
        """A place for a run while it is being accepted; once under way it counts by itself.

        Args:
            tenant: whose run it is.
            size: bytes of what it was asked with.

        Raises:
            Overloaded: there is none, or others come first.
        """
        self._check(tenant, size)
        self._refused.pop(tenant, None)
        self._arriving[tenant] += 1
        try:
            yield
        finally:
            self._arriving -= Counter([tenant])  # which drops who has none

    def _check(self, tenant: str, size: int) -> None:
        if not self.free:
            self._refused[tenant] = self._clock()
            raise _overloaded(f"{self._most_runs} runs are under way")
        if self._bytes + size > self._most_bytes:
            raise _overloaded("the runs under way take all the memory they may")
        if self._behind() > BEHIND_SECONDS:
            raise _overloaded("runs come faster than they can be kept")
        others = self._others_waiting(tenant)
        if others and self._held(tenant) >= self._most_runs // (len(others) + 1):
            raise _overloaded("others wait for their share of the places")

    def _others_waiting(self, tenant: str) -> set[str]:
        """Tenants refused of late, who have less than the one that asks."""
        since = self._clock() - WAITING_SECONDS
        self._refused = {name: at for name, at in self._refused.items() if at > since}
        held = self._held(tenant)
        return {name for name in self._refused if name != tenant and self._held(name) < held}

    @property
    def _bytes(self) -> int:
        return sum(run.bytes for run in self._live.values())

    def _held(self, tenant: str) -> int:
        return self._arriving[tenant] + sum(run.caller.tenant == tenant for run in filter(_counts, self._live.values()))


def _counts(run: LiveRun) -> bool:
    """Whether it takes a place: items of batches have their own."""
    return not run.view.run.batch.index


def _overloaded(message: str) -> Overloaded:
    return Overloaded(message, remedy="try again soon", retry_after=RETRY_AFTER)
