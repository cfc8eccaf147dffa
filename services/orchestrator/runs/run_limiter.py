"""Limits active runs, their memory and their wait for the journal; shares the slots fairly between tenants."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common.errors import Overloaded
from services.orchestrator.runs.run_log import RunLog

RETRY_AFTER = timedelta(seconds=1)

WAITING_SECONDS = 10.0
"""How long a refused tenant counts as waiting for its share."""

MAX_WRITE_SECONDS = 5.0
"""Longest journal write of a new run before further runs are refused."""

BATCH_MEMORY_SHARE = 0.75
"""Share of the memory for runs that batch items may use: the rest stays free for interactive runs."""


class RunLimiter:
    """Slots for active runs. When no slot is free, tenants with more than their share are refused first.

    Args:
        active: runs of this process.
        max_runs: number of slots.
        max_bytes: memory for the events of all runs.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        active: Mapping[str, RunLog],
        *,
        max_runs: int,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._active = active
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._clock = clock
        self._arriving: Counter[str] = Counter()
        self._refused: dict[str, float] = {}
        self._writes: dict[asyncio.Future[str], float] = {}
        """Journal writes of new runs that have not finished, oldest first, with their starts."""

    @property
    def free_slots(self) -> int:
        """Number of free slots."""
        return max(0, self._max_runs - sum(map(_uses_slot, self._active.values())) - self._arriving.total())

    def has_interactive_runs(self) -> bool:
        """Whether an interactive run is active or being accepted."""
        return bool(self._arriving) or any(run.caller.priority != PRIORITY_BATCH for run in self._active.values())

    def is_memory_low(self) -> bool:
        """Whether active runs use all the memory that batch items may fill."""
        return self._bytes >= self._max_bytes * BATCH_MEMORY_SHARE

    @contextmanager
    def admit(self, tenant: str, size: int) -> Iterator[None]:
        """Holds a slot while a run is being accepted; the active run then counts by itself.

        Args:
            tenant: owner of the run.
            size: bytes of the request.

        Raises:
            Overloaded: no slot or memory is free, or other tenants wait for their share.
        """
        self._check(tenant, size)
        self._refused.pop(tenant, None)
        self._arriving[tenant] += 1
        try:
            yield
        finally:
            self._arriving -= Counter([tenant])  # drops a tenant whose count is 0

    def track_write(self, write: "asyncio.Future[str]") -> "asyncio.Future[str]":
        """Tracks the journal write of a new run until it is done; returns it."""
        self._writes[write] = self._clock()
        write.add_done_callback(self._writes.pop)
        return write

    async def wait_written(self) -> None:
        """Waits until the current journal writes of new runs are done."""
        if self._writes:
            await asyncio.wait(self._writes)

    def _check(self, tenant: str, size: int) -> None:
        if not self.free_slots:
            self._refused[tenant] = self._clock()
            raise _overloaded(f"{self._max_runs} runs are active")
        if self._bytes + size > self._max_bytes:
            raise _overloaded("the active runs use all the memory for runs")
        if self._writes and self._clock() - next(iter(self._writes.values())) > MAX_WRITE_SECONDS:
            raise _overloaded("the journal is too slow: new runs wait to be stored")
        others = self._waiting_tenants(tenant)
        if others and self._count(tenant) >= self._max_runs // (len(others) + 1):
            raise _overloaded("other tenants wait for their share of the run slots")

    def _waiting_tenants(self, tenant: str) -> set[str]:
        """Tenants that were refused lately and have fewer runs than `tenant`."""
        since = self._clock() - WAITING_SECONDS
        self._refused = {name: at for name, at in self._refused.items() if at > since}
        count = self._count(tenant)
        return {name for name in self._refused if name != tenant and self._count(name) < count}

    @property
    def _bytes(self) -> int:
        return sum(run.bytes for run in self._active.values())

    def _count(self, tenant: str) -> int:
        runs = filter(_uses_slot, self._active.values())
        return self._arriving[tenant] + sum(run.caller.tenant == tenant for run in runs)


def _uses_slot(run: RunLog) -> bool:
    """Whether a run takes one of these slots; batch items have their own."""
    return not run.fold.run.batch.index


def _overloaded(message: str) -> Overloaded:
    return Overloaded(message, remedy="try again soon", retry_after=RETRY_AFTER)
