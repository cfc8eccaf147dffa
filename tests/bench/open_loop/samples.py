"""What became of requests that came at given moments, and what that says of a rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.bench.rows import quantile

LATE_SECONDS = 0.05
"""More, of one request in a hundred, and it was not the rate asked for that was measured."""

Ending = Literal["completed", "refused", "failed"]


@dataclass(frozen=True)
class Sample:
    """One request; moments in seconds from the beginning."""

    due: float
    sent: float
    """Later than it was due where the one who sends had no processor."""
    ended: float
    ending: Ending = "completed"
    told: bool = True
    """Of one refused: whether it was told when to come back."""
    why: str = ""
    """Of one that failed: status and reason."""

    @property
    def latency(self) -> float:
        """From when it was due: who waits longer for a slow answer does not ask less often in here."""
        return self.ended - self.due


@dataclass(frozen=True)
class Point:
    """What a rate came to; times in seconds, rates a second."""

    samples: Sequence[Sample]
    seconds: float
    """So long requests came."""

    @property
    def offered(self) -> float:
        return len(self.samples) / self.seconds

    @property
    def goodput(self) -> float:
        """Completed, over the time from the first of them to the last, which may come after the last request."""
        ends = [sample.ended for sample in self.of("completed")]
        return len(ends) / max(self.seconds, max(ends, default=0) - min(ends, default=0))

    @property
    def late(self) -> float:
        """Of those who send, the 99th percentile."""
        return quantile([sample.sent - sample.due for sample in self.samples], 0.99)

    @property
    def valid(self) -> bool:
        """Whether requests were sent when they were due."""
        return self.late <= LATE_SECONDS

    def of(self, ending: Ending) -> Sequence[Sample]:
        return [sample for sample in self.samples if sample.ending == ending]

    def latency(self, share: float, ending: Ending = "completed") -> float:
        """A quantile over all that ended so; not a number if none did."""
        return quantile([sample.latency for sample in self.of(ending)], share)
