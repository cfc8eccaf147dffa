"""When an endpoint that keeps failing is left alone."""

from collections.abc import Callable

FAILURES = 3
"""Calls in a row, each after its own retries, that open it."""

COOL_DOWN_SECONDS = 30.0


class Breaker:
    """Counts failures and nonsense in a row; open, it lets one call in after each cool-down.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = self._nonsense = 0
        self._opened_at: float | None = None
        self._probing = False
        self.reason = ""
        """Why the last call failed."""

    def admits(self) -> bool:
        """Whether a call may be made now; whoever asks then says how it went."""
        if self._opened_at is None:
            return True
        if self._probing or self.seconds_left() > 0:
            return False
        self._probing = True
        return True

    @property
    def shut(self) -> bool:
        """Whether it is open and nobody tries the endpoint: whoever was let in earlier and waits goes away."""
        return self._opened_at is not None and not self._probing

    def seconds_left(self) -> float:
        """Until it lets a call in."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + COOL_DOWN_SECONDS - self._clock())

    def succeeded(self) -> None:
        """A call came to its end; whether it made sense is judged apart."""
        self._failures = 0
        if self._probing:
            self._opened_at, self._probing = None, False

    def failed(self, reason: str) -> None:
        """A call failed, and the endpoint is to blame."""
        self.reason = reason
        self._failures += 1
        if self._probing or self._failures >= FAILURES:
            self._open()

    def left(self) -> None:
        """A call ended that says nothing about the endpoint."""
        self._probing = False

    def judged(self, *, ok: bool) -> None:
        """An answer made sense, or none."""
        self._nonsense = 0 if ok else self._nonsense + 1
        if self._nonsense >= FAILURES:
            self.reason = "its answers made no sense"
            self._nonsense = FAILURES - 1  # after the cool-down one more is enough
            self._open()

    def _open(self) -> None:
        self._opened_at, self._probing = self._clock(), False
