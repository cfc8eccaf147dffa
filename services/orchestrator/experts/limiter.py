"""Whose call of an expert is made next: bounded in all, by expert and by run, and fair between those who wait."""

import asyncio
import itertools
from collections import Counter, OrderedDict
from typing import NamedTuple

INTERACTIVE_IN_A_ROW = 4
"""Turns that people's calls get before one of the background has its own, if some wait."""

BACKGROUND = 0.75
"""Of all places, and of each expert's, what the background may take: people find one without waiting for its calls."""


class Turn(NamedTuple):
    """A call's place among others."""

    expert: str
    tenant: str
    run: str
    batch: bool = False
    """Nobody waits for it in person."""


class _Waiter(NamedTuple):
    turn: Turn
    number: int
    granted: asyncio.Future[None]


class Turns:
    """Places for calls. Whoever can have one when asking has it at once.

    Those who wait: people before the background, tenants in turn, runs of a tenant in turn, each run in its order. A
    call of an expert or run that has all its places holds up nobody else. Some places are for people alone.

    Args:
        at_once: places in all.
        per_expert: most of them for one expert.
        per_run: most of them for one run.
    """

    def __init__(self, *, at_once: int, per_expert: int, per_run: int) -> None:
        self._free, self._free_for_background = at_once, _share(at_once)
        self._per_expert, self._per_run = per_expert, per_run
        self._experts: Counter[str] = Counter()
        self._of_background: Counter[str] = Counter()
        self._runs: Counter[str] = Counter()
        self._people, self._background = _Line(batch=False), _Line(batch=True)
        self._in_a_row = 0
        self._numbers = itertools.count()

    def try_take(self, turn: Turn) -> bool:
        """A place, if there is one now; whoever waits could not have it."""
        if not (self._free and self.has_room(turn.expert, batch=turn.batch) and self.may_go(turn.run)):
            return False
        self._enter(turn)
        return True

    async def take(self, turn: Turn) -> None:
        """A place, as soon as it is this call's turn; who is cancelled meanwhile leaves nothing behind."""
        if self.try_take(turn):
            return
        waiter = _Waiter(turn, next(self._numbers), asyncio.get_running_loop().create_future())
        line = self._background if turn.batch else self._people
        line.add(waiter)
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.cancelled():
                line.remove(waiter)
            else:
                self.give_back(turn)
            raise

    def give_back(self, turn: Turn) -> None:
        """The call has ended: the place is somebody else's."""
        self._free += 1
        _less(self._experts, turn.expert)
        _less(self._runs, turn.run)
        if turn.batch:
            self._free_for_background += 1
            _less(self._of_background, turn.expert)
        while self._free and (waiter := self._next()):
            if not waiter.granted.cancelled():  # as it is while who waited is on the way out
                self._enter(waiter.turn)
                waiter.granted.set_result(None)

    def has_room(self, expert: str, *, batch: bool) -> bool:
        """Whether the expert has a place left for such a call."""
        if batch and not (self._free_for_background and self._of_background[expert] < _share(self._per_expert)):
            return False
        return self._experts[expert] < self._per_expert

    def may_go(self, run: str) -> bool:
        """Whether the run may have one more place."""
        return self._runs[run] < self._per_run

    def _enter(self, turn: Turn) -> None:
        self._free -= 1
        self._experts[turn.expert] += 1
        self._runs[turn.run] += 1
        if turn.batch:
            self._free_for_background -= 1
            self._of_background[turn.expert] += 1

    def _next(self) -> _Waiter | None:
        if self._in_a_row >= INTERACTIVE_IN_A_ROW and (waiter := self._background.pop(self)):
            self._in_a_row = 0
            return waiter
        if waiter := self._people.pop(self):
            self._in_a_row += bool(self._background)
            return waiter
        self._in_a_row = 0
        return self._background.pop(self)


class _Line:
    """Those who wait, by tenant, run and expert; whoever was served goes to the end.

    Args:
        batch: they are the background.
    """

    def __init__(self, *, batch: bool) -> None:
        self._batch = batch
        self._tenants: OrderedDict[str, OrderedDict[str, _Run]] = OrderedDict()
        self._wanted: Counter[str] = Counter()
        self._numbers: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def add(self, waiter: _Waiter) -> None:
        turn = waiter.turn
        run = self._tenants.setdefault(turn.tenant, OrderedDict()).setdefault(turn.run, {})
        run.setdefault(turn.expert, OrderedDict())[waiter.number] = waiter
        self._wanted[turn.expert] += 1
        self._numbers.add(waiter.number)

    def remove(self, waiter: _Waiter) -> None:
        """Takes one out, unless that was done already."""
        if waiter.number not in self._numbers:
            return
        self._numbers.remove(waiter.number)
        turn = waiter.turn
        runs = self._tenants[turn.tenant]
        calls = runs[turn.run][turn.expert]
        del calls[waiter.number]
        _less(self._wanted, turn.expert)
        if not calls:
            del runs[turn.run][turn.expert]
        if not runs[turn.run]:
            del runs[turn.run]
        if not runs:
            del self._tenants[turn.tenant]

    def pop(self, turns: Turns) -> _Waiter | None:
        """Takes out who is next, if anybody who waits can have a place."""
        ready = {expert for expert in self._wanted if turns.has_room(expert, batch=self._batch)}
        if not ready:
            return None
        waiter = next((found for runs in self._tenants.values() if (found := _first(runs, ready, turns))), None)
        if waiter:
            tenant, run = waiter.turn.tenant, waiter.turn.run
            self._tenants[tenant].move_to_end(run)
            self._tenants.move_to_end(tenant)
            self.remove(waiter)
        return waiter


_Run = dict[str, OrderedDict[int, _Waiter]]
"""A run's waiting calls by expert, in the order in which they came."""


def _first(runs: OrderedDict[str, _Run], ready: set[str], turns: Turns) -> _Waiter | None:
    for run, experts in runs.items():
        if not ready.isdisjoint(experts) and turns.may_go(run):
            heads = (next(iter(calls.values())) for expert, calls in experts.items() if expert in ready)
            return min(heads, key=lambda waiter: waiter.number)
    return None


def _share(places: int) -> int:
    return max(1, int(places * BACKGROUND))


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
