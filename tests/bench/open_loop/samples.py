"""Results of open-loop requests, and statistics of one rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.bench.rows import quantile

LATE_SECONDS = 0.05
"""If 1 % of requests are sent later than this, the intended rate was not offered."""

Ending = Literal["completed", "refused", "failed"]


@dataclass(frozen=True)
class Sample:
    """One request; times in seconds from the start.

    Attributes:
        due: scheduled time.
        sent: actual time, later than due if the load generator had too little CPU.
        ended: time of the response.
        ending: result.
        has_retry_after: of a refusal, whether it had the header Retry-After.
        failure: of a failure, its status and reason.
    """

    due: float
    sent: float
    ended: float
    ending: Ending = "completed"
    has_retry_after: bool = True
    failure: str = ""

    @property
    def latency(self) -> float:
        """Seconds from the scheduled time, so that late sending does not hide latency (coordinated omission)."""
        return self.ended - self.due


@dataclass(frozen=True)
class Point:
    """Results at one rate.

    Attributes:
        samples: of all requests.
        seconds: duration of the schedule.
    """

    samples: Sequence[Sample]
    seconds: float

    @property
    def offered(self) -> float:
        return len(self.samples) / self.seconds

    @property
    def goodput(self) -> float:
        """Completed requests per second, from the first completion to the last, which may follow the last request."""
        ends = [sample.ended for sample in self.of("completed")]
        return len(ends) / max(self.seconds, max(ends, default=0) - min(ends, default=0))

    @property
    def late(self) -> float:
        """99th percentile of the delay between due and sent."""
        return quantile([sample.sent - sample.due for sample in self.samples], 0.99)

    @property
    def valid(self) -> bool:
        """Whether requests were sent on schedule."""
        return self.late <= LATE_SECONDS

    def of(self, ending: Ending) -> Sequence[Sample]:
        return [sample for sample in self.samples if sample.ending == ending]

    def latency(self, share: float, ending: Ending = "completed") -> float:
        """Quantile of the latency of requests with this result; NaN if there are none."""
        return quantile([sample.latency for sample in self.of(ending)], share)
