"""Queueing simulation of a deployment: processes that serve one request at a time and share a few cores."""

import heapq
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from tests.bench.open_loop.samples import Sample

ROUTE = (
    *("gateway", "orchestrator", "postgres", "planner", "orchestrator", "selector", "orchestrator"),
    *("expert", "orchestrator", "postgres", "responder", "orchestrator", "postgres", "gateway"),
)
"""Stations that a run of one task visits in turn; the time of a station is divided evenly among its visits."""

Draw = Callable[[float], float]
"""Draws the service time of a visit from its mean, in seconds."""


def exponential(seed: int) -> Draw:
    """Exponentially distributed service times; equal seeds give equal times."""
    rng = random.Random(seed)
    return lambda mean: rng.expovariate(1 / mean) if mean else 0.0


@dataclass(frozen=True)
class Model:
    """Parameters of a simulated deployment.

    Attributes:
        seconds: core-seconds per run, by station.
        cores: shared by all stations, which limits how many serve at once.
        max_runs: active runs; further arrivals are refused.
        route: stations in order.
    """

    seconds: Mapping[str, float]
    cores: int
    max_runs: int
    route: Sequence[str] = ROUTE

    @property
    def max_rate(self) -> float:
        """Runs per second at which all cores, or the busiest station, are fully utilized."""
        return min(self.cores / sum(self.seconds.values()), 1 / max(self.seconds.values()))

    @property
    def visits(self) -> Sequence[tuple[str, float]]:
        """Stations of a run in order, each with the mean seconds of that visit."""
        visits = Counter(self.route)
        return [(station, self.seconds[station] / visits[station]) for station in self.route]

    def samples(self, moments: Sequence[float], draw: Draw) -> Sequence[Sample]:
        """Simulates runs that arrive at these times."""
        return _Simulation(self, draw).run(moments)


@dataclass
class _Run:
    due: float
    visit: int = 0


@dataclass
class _Simulation:
    """One simulation: cores are assigned to stations round robin, and each station serves its queue in order."""

    model: Model
    draw: Draw
    _queues: defaultdict[str, deque[_Run]] = field(default_factory=lambda: defaultdict(deque))
    _ready: deque[str] = field(default_factory=deque)
    _serving: set[str] = field(default_factory=set)
    _events: list[tuple[float, int, _Run]] = field(default_factory=list)
    _active: int = 0

    def run(self, moments: Sequence[float]) -> Sequence[Sample]:
        self._visits, self._number, samples = self.model.visits, count(), list[Sample]()
        for due in moments:
            self._schedule(due, _Run(due, visit=-1))
        while self._events:
            now, _, run = heapq.heappop(self._events)
            samples += self._advance(now, run)
            self._serve(now)
        return samples

    def _schedule(self, at: float, run: _Run) -> None:
        heapq.heappush(self._events, (at, next(self._number), run))

    def _advance(self, now: float, run: _Run) -> Sequence[Sample]:
        """Admits an arriving run, or moves a served one to its next station; returns its sample once it ends."""
        if run.visit < 0 and self._active >= self.model.max_runs:
            return [Sample(run.due, run.due, now, "refused")]
        if run.visit < 0:
            self._active += 1
        else:
            self._leave(self._visits[run.visit][0])
        run.visit += 1
        if run.visit == len(self._visits):
            self._active -= 1
            return [Sample(run.due, run.due, now)]
        self._enter(self._visits[run.visit][0], run)
        return []

    def _enter(self, station: str, run: _Run) -> None:
        if not self._queues[station] and station not in self._serving:
            self._ready.append(station)
        self._queues[station].append(run)

    def _leave(self, station: str) -> None:
        self._serving.remove(station)
        if self._queues[station]:
            self._ready.append(station)

    def _serve(self, now: float) -> None:
        while self._ready and len(self._serving) < self.model.cores:
            station = self._ready.popleft()
            self._serving.add(station)
            run = self._queues[station].popleft()
            self._schedule(now + self.draw(self._visits[run.visit][1]), run)
