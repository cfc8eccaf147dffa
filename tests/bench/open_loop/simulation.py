"""A house of queues: what processes that work one thing at a time, on few cores, would make of a rate."""

import heapq
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from tests.bench.open_loop.samples import Sample

WAY = (
    *("gateway", "orchestrator", "postgres", "planner", "orchestrator", "selector", "orchestrator"),
    *("expert", "orchestrator", "postgres", "responder", "orchestrator", "postgres", "gateway"),
)
"""Where a run of one task goes; what a room takes for a run is spread evenly over its visits."""

Draw = Callable[[float], float]
"""How long a visit takes that takes so many seconds in the mean."""


def exponential(seed: int) -> Draw:
    """Times of no memory; the same seed gives the same."""
    chance = random.Random(seed)
    return lambda mean: chance.expovariate(1 / mean) if mean else 0.0


@dataclass(frozen=True)
class Model:
    """What is known of a house."""

    seconds: Mapping[str, float]
    """Of a core, that a room takes for a run."""
    cores: int
    """That all rooms share: more rooms than that do not work at once."""
    places: int
    """For runs; one that comes while all are taken is refused."""
    way: Sequence[str] = WAY

    @property
    def most(self) -> float:
        """Runs a second that it can do: all cores are at work, or the busiest room is."""
        return min(self.cores / sum(self.seconds.values()), 1 / max(self.seconds.values()))

    @property
    def visits(self) -> Sequence[tuple[str, float]]:
        """Rooms a run comes to, and the mean seconds there."""
        times = Counter(self.way)
        return [(room, self.seconds[room] / times[room]) for room in self.way]

    def samples(self, moments: Sequence[float], draw: Draw) -> Sequence[Sample]:
        """What becomes of runs that come at these moments."""
        return _Course(self, draw).run(moments)


@dataclass
class _Run:
    due: float
    visit: int = 0


@dataclass
class _Course:
    """One simulation: rooms that have work take turns at the cores, and work off what waits in them in order."""

    model: Model
    draw: Draw
    _waiting: defaultdict[str, deque[_Run]] = field(default_factory=lambda: defaultdict(deque))
    _turns: deque[str] = field(default_factory=deque)
    _at_work: set[str] = field(default_factory=set)
    _events: list[tuple[float, int, _Run]] = field(default_factory=list)
    _inside: int = 0

    def run(self, moments: Sequence[float]) -> Sequence[Sample]:
        self._visits, self._number, samples = self.model.visits, count(), list[Sample]()
        for due in moments:
            self._happens(due, _Run(due, visit=-1))
        while self._events:
            now, _, run = heapq.heappop(self._events)
            samples += self._moved(now, run)
            self._work(now)
        return samples

    def _happens(self, at: float, run: _Run) -> None:
        heapq.heappush(self._events, (at, next(self._number), run))

    def _moved(self, now: float, run: _Run) -> Sequence[Sample]:
        """A run comes in, or has been served; its sample once nothing is left to do."""
        if run.visit < 0 and self._inside >= self.model.places:
            return [Sample(run.due, run.due, now, "refused")]
        if run.visit < 0:
            self._inside += 1
        else:
            self._leave(self._visits[run.visit][0])
        run.visit += 1
        if run.visit == len(self._visits):
            self._inside -= 1
            return [Sample(run.due, run.due, now)]
        self._enter(self._visits[run.visit][0], run)
        return []

    def _enter(self, room: str, run: _Run) -> None:
        if not self._waiting[room] and room not in self._at_work:
            self._turns.append(room)
        self._waiting[room].append(run)

    def _leave(self, room: str) -> None:
        self._at_work.remove(room)
        if self._waiting[room]:
            self._turns.append(room)

    def _work(self, now: float) -> None:
        while self._turns and len(self._at_work) < self.model.cores:
            room = self._turns.popleft()
            self._at_work.add(room)
            run = self._waiting[room].popleft()
            self._happens(now + self.draw(self._visits[run.visit][1]), run)
