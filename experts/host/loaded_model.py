"""A model in memory, and what was learnt of it there."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from math import inf

from experts.host.handler import Batching, Elsewhere, Handler, Trouble
from experts.host.latency_model import Pace
from experts.host.metering import Pool, User, cpus

_RECOVERY = 1.1


@dataclass(eq=False)
class Loaded:
    """A model in memory, and what was learnt of it there."""

    handler: Handler | Elsewhere
    pool: Pool | None = None
    """What it computes on beside the CPUs."""
    pace: Pace = field(default_factory=Pace)
    ceiling: float = inf
    """Most that a batch may cost, since a larger one did not fit."""
    _warm: bool = False

    @property
    def batching(self) -> Batching:
        """How it likes its batches, as far as memory allows."""
        own: Batching = getattr(self.handler, "batching", None) or Batching()
        return own if own.budget <= self.ceiling else Batching(own.items, self.ceiling, own.padded)

    @property
    def revision(self) -> str:
        """The commit that was loaded, if the model knows."""
        return getattr(self.handler, "revision", None) or ""

    @property
    def memory_bytes(self) -> int:
        """What it takes, if the model knows better than this process can measure."""
        return getattr(self.handler, "memory_bytes", None) or 0

    @property
    def trouble(self) -> Trouble | None:
        """Why it cannot answer for now, if it says so."""
        return getattr(self.handler, "trouble", None)

    def computing(self, user: User) -> AbstractContextManager[object]:
        """Whoever has it run within the block uses what it computes on."""
        return _both(cpus(), self.pool, user) if self.pool else cpus().used(user)

    def ran(self, cost: float, seconds: float) -> None:
        """A batch ran well, and took so long; the first says nothing, engines warm up on it."""
        if self._warm:
            self.pace.learn(cost, seconds)
        self._warm = True
        self.ceiling *= _RECOVERY  # what was short of memory may have it now

    def did_not_fit(self, cost: float) -> None:
        """A batch ran out of memory."""
        self.ceiling = cost / 2

    def end(self) -> None:
        """Ends the process in which it is, if that is one of its own."""
        if hasattr(self.handler, "kill"):
            self.close()

    def close(self) -> None:
        """Lets the model clean up; on the device's thread."""
        if close := getattr(self.handler, "close", None):
            close()


@contextmanager
def _both(one: Pool, other: Pool, user: User) -> Iterator[None]:
    with one.used(user), other.used(user):
        yield
