"""Availability of an endpoint, shared by all models behind it."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from math import inf, isfinite

from experts.host.handler import UnavailableReason
from services.common.errors import FailedPrecondition


class EndpointHealth:
    """Whether an endpoint is available, or unavailable for a reason and possibly for a limited time.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.changed: Callable[[], None] = lambda: None
        """Called when the unavailable reason changes."""
        self._clock = clock
        self._reason: UnavailableReason | None = None
        self._until = 0.0

    @property
    def unavailable_reason(self) -> UnavailableReason | None:
        return self._reason if self._clock() < self._until else None

    @property
    def is_suspended(self) -> bool:
        """Whether it is unavailable for a fixed time, which a successful check does not end."""
        return self.unavailable_reason is not None and isfinite(self._until)

    def mark_unavailable(self, message: str, remedy: str, *, seconds: float = inf) -> None:
        """Marks it as unavailable, by default until `mark_available`; must be called on the event loop."""
        before = self.unavailable_reason
        self._reason, self._until = UnavailableReason(message, remedy), self._clock() + seconds
        if self._reason != before:
            self.changed()
        if isfinite(seconds):
            asyncio.get_running_loop().call_later(seconds, lambda: self.changed())  # noqa: PLW0108  # set later

    def mark_available(self) -> None:
        before, self._reason = self.unavailable_reason, None
        if before:
            self.changed()

    def check(self) -> None:
        """Checks that it may be called.

        Raises:
            FailedPrecondition: LOAD_FAILED, so that callers use the next candidate.
        """
        if reason := self.unavailable_reason:
            left = self._until - self._clock()
            after = timedelta(seconds=max(0.0, left)) if isfinite(left) else None
            raise FailedPrecondition(reason.message, remedy=reason.remedy, reason="LOAD_FAILED", retry_after=after)
