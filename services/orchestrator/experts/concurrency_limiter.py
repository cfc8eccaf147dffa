"""Limits concurrent calls of experts: in total, by expert and by run, fairly among waiting calls."""

import asyncio
import itertools
from collections import Counter, OrderedDict
from typing import NamedTuple

INTERACTIVE_IN_A_ROW = 4
"""Permits granted to interactive calls before a waiting batch call gets one."""

BATCH_SHARE = 0.75
"""Share of all permits, and of each expert's, that batch calls may hold: interactive calls find one free at once."""


class Permit(NamedTuple):
    """Describes the call that holds a permit."""

    expert: str
    tenant: str
    run: str
    batch: bool = False
    """The call is for an item of a batch, or a shadow."""


class _Waiter(NamedTuple):
    permit: Permit
    number: int
    granted: asyncio.Future[None]


class ConcurrencyLimiter:
    """Grants permits for calls, at once where the limits allow it.

    Waiting calls are ordered: interactive before batch, tenants round-robin, runs of a tenant round-robin, calls of a
    run in their order. A call whose expert or run is at its limit does not block others. A share of the permits is
    reserved for interactive calls.

    Args:
        at_once: limit of all permits.
        per_expert: limit of one expert.
        per_run: limit of one run.
    """

    def __init__(self, *, at_once: int, per_expert: int, per_run: int) -> None:
        self._free, self._free_for_batch = at_once, _batch_share(at_once)
        self._per_expert, self._per_run = per_expert, per_run
        self._experts: Counter[str] = Counter()
        self._batch_calls: Counter[str] = Counter()
        self._runs: Counter[str] = Counter()
        self._interactive, self._batch = _FairQueue(batch=False), _FairQueue(batch=True)
        self._in_a_row = 0
        self._numbers = itertools.count()

    def try_acquire(self, permit: Permit) -> bool:
        """Acquires a permit if one is available now; no waiting call could have used it."""
        if not (self._free and self.has_capacity(permit.expert, batch=permit.batch) and self.may_start(permit.run)):
            return False
        self._grant(permit)
        return True

    async def acquire(self, permit: Permit) -> None:
        """Waits for a permit; a cancelled call leaves the queue."""
        if self.try_acquire(permit):
            return
        waiter = _Waiter(permit, next(self._numbers), asyncio.get_running_loop().create_future())
        queue = self._batch if permit.batch else self._interactive
        queue.add(waiter)
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.cancelled():
                queue.remove(waiter)
            else:
                self.release(permit)
            raise

    def release(self, permit: Permit) -> None:
        """Returns a permit, which is granted to the next waiting call."""
        self._free += 1
        _decrement(self._experts, permit.expert)
        _decrement(self._runs, permit.run)
        if permit.batch:
            self._free_for_batch += 1
            _decrement(self._batch_calls, permit.expert)
        while self._free and (waiter := self._next()):
            if not waiter.granted.cancelled():  # cancelled, but not yet removed by its task
                self._grant(waiter.permit)
                waiter.granted.set_result(None)

    def has_capacity(self, expert: str, *, batch: bool) -> bool:
        """Whether the expert's limit allows one more such call."""
        if batch and not (self._free_for_batch and self._batch_calls[expert] < _batch_share(self._per_expert)):
            return False
        return self._experts[expert] < self._per_expert

    def may_start(self, run: str) -> bool:
        """Whether the run's limit allows one more call."""
        return self._runs[run] < self._per_run

    def _grant(self, permit: Permit) -> None:
        self._free -= 1
        self._experts[permit.expert] += 1
        self._runs[permit.run] += 1
        if permit.batch:
            self._free_for_batch -= 1
            self._batch_calls[permit.expert] += 1

    def _next(self) -> _Waiter | None:
        if self._in_a_row >= INTERACTIVE_IN_A_ROW and (waiter := self._batch.pop(self)):
            self._in_a_row = 0
            return waiter
        if waiter := self._interactive.pop(self):
            self._in_a_row += bool(self._batch)
            return waiter
        self._in_a_row = 0
        return self._batch.pop(self)


class _FairQueue:
    """Waiting calls by tenant, run and expert; tenants and runs are served round-robin.

    Args:
        batch: they are batch calls.
    """

    def __init__(self, *, batch: bool) -> None:
        self._batch = batch
        self._tenants: OrderedDict[str, OrderedDict[str, _Run]] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        self._numbers: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def add(self, waiter: _Waiter) -> None:
        permit = waiter.permit
        run = self._tenants.setdefault(permit.tenant, OrderedDict()).setdefault(permit.run, {})
        run.setdefault(permit.expert, OrderedDict())[waiter.number] = waiter
        self._waiting[permit.expert] += 1
        self._numbers.add(waiter.number)

    def remove(self, waiter: _Waiter) -> None:
        """Removes a call, unless it was removed already."""
        if waiter.number not in self._numbers:
            return
        self._numbers.remove(waiter.number)
        permit = waiter.permit
        runs = self._tenants[permit.tenant]
        calls = runs[permit.run][permit.expert]
        del calls[waiter.number]
        _decrement(self._waiting, permit.expert)
        if not calls:
            del runs[permit.run][permit.expert]
        if not runs[permit.run]:
            del runs[permit.run]
        if not runs:
            del self._tenants[permit.tenant]

    def pop(self, limiter: ConcurrencyLimiter) -> _Waiter | None:
        """Removes and returns the next call that may have a permit; None if there is none."""
        ready = {expert for expert in self._waiting if limiter.has_capacity(expert, batch=self._batch)}
        if not ready:
            return None
        waiter = next((found for runs in self._tenants.values() if (found := _first(runs, ready, limiter))), None)
        if waiter:
            tenant, run = waiter.permit.tenant, waiter.permit.run
            self._tenants[tenant].move_to_end(run)
            self._tenants.move_to_end(tenant)
            self.remove(waiter)
        return waiter


_Run = dict[str, OrderedDict[int, _Waiter]]
"""Waiting calls of a run by expert, oldest first."""


def _first(runs: OrderedDict[str, _Run], ready: set[str], limiter: ConcurrencyLimiter) -> _Waiter | None:
    for run, experts in runs.items():
        if not ready.isdisjoint(experts) and limiter.may_start(run):
            heads = (next(iter(calls.values())) for expert, calls in experts.items() if expert in ready)
            return min(heads, key=lambda waiter: waiter.number)
    return None


def _batch_share(permits: int) -> int:
    return max(1, int(permits * BATCH_SHARE))


def _decrement(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
