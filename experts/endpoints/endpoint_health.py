"""Whether an endpoint can be asked at all, as everything behind it shares it."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from math import inf, isfinite

from experts.host.handler import Trouble
from services.common.errors import FailedPrecondition


class Standing:
    """Fine, or in trouble for a while.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.changed: Callable[[], None] = lambda: None
        """Told when trouble comes or goes."""
        self._clock = clock
        self._trouble: Trouble | None = None
        self._until = 0.0

    @property
    def trouble(self) -> Trouble | None:
        return self._trouble if self._clock() < self._until else None

    @property
    def serves_time(self) -> bool:
        """It is in trouble for a set time, whatever else is heard of it."""
        return self.trouble is not None and isfinite(self._until)

    def failed(self, message: str, remedy: str, *, seconds: float = inf) -> None:
        """It cannot be asked for so long; to be called on the loop."""
        before, self._trouble, self._until = self.trouble, Trouble(message, remedy), self._clock() + seconds
        if self._trouble != before:
            self.changed()
        if isfinite(seconds):
            asyncio.get_running_loop().call_later(seconds, lambda: self.changed())  # noqa: PLW0108  # set later

    def mended(self) -> None:
        before, self._trouble = self.trouble, None
        if before:
            self.changed()

    def check(self) -> None:
        """Whether it may be asked.

        Raises:
            FailedPrecondition: LOAD_FAILED, so that callers turn to the next candidate.
        """
        if trouble := self.trouble:
            left = self._until - self._clock()
            after = timedelta(seconds=max(0.0, left)) if isfinite(left) else None
            raise FailedPrecondition(trouble.message, remedy=trouble.remedy, reason="LOAD_FAILED", retry_after=after)
