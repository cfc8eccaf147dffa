"""Deadlines on the monotonic clock."""

import time
from collections.abc import Callable
from typing import Self

Clock = Callable[[], float]


class Deadline:
    """A moment by which work must be done, measured on the monotonic clock.

    Between processes and in the journal a deadline is wall-clock time. That clock may jump, so each process converts
    it once, when it starts the work, and measures on the monotonic clock from then on.

    Args:
        seconds: from now on; infinite for no deadline.
        clock: monotonic seconds.
    """

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._at = clock() + seconds

    @classmethod
    def at(cls, moment: float) -> Self:
        """Converts a wall-clock deadline.

        Args:
            moment: in seconds since the epoch.
        """
        return cls(moment - time.time())

    @property
    def left(self) -> float:
        """Seconds left; negative once the deadline has passed."""
        return self._at - self._clock()

    def sooner(self, seconds: float) -> "Deadline":
        """The earlier of this deadline and a deadline `seconds` from now."""
        return Deadline(min(seconds, self.left), self._clock)
