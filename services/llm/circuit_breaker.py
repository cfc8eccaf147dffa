"""Circuit breaker for the model of an LLM endpoint."""

from collections.abc import Callable

FAILURES_TO_OPEN = 3
"""Consecutive failed calls, each after its own retries, that open the circuit."""

COOL_DOWN_SECONDS = 30.0
"""How long the circuit stays open before one probe call is allowed."""


class CircuitBreaker:
    """Opens after consecutive failures or invalid answers; allows one probe call after each cool-down.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = self._invalid_answers = 0
        self._opened_at: float | None = None
        self._probing = False
        self.reason = ""
        """Reason of the last failure."""

    def try_start_call(self) -> bool:
        """Whether a call may start now. The caller must report its result with a `record_…` method."""
        if self._opened_at is None:
            return True
        if self._probing or self.seconds_until_probe() > 0:
            return False
        self._probing = True
        return True

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open and no probe runs; calls that already wait for a slot must fail."""
        return self._opened_at is not None and not self._probing

    def seconds_until_probe(self) -> float:
        """Seconds until a probe call is allowed; 0 if the circuit is closed."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + COOL_DOWN_SECONDS - self._clock())

    def record_success(self) -> None:
        """Records a completed call; `record_answer` records whether its answer was valid."""
        self._failures = 0
        if self._probing:
            self._opened_at, self._probing = None, False

    def record_failure(self, reason: str) -> None:
        """Records a call that failed because of the endpoint."""
        self.reason = reason
        self._failures += 1
        if self._probing or self._failures >= FAILURES_TO_OPEN:
            self._open()

    def record_inconclusive(self) -> None:
        """Records a call whose end shows nothing about the endpoint, such as a cancelled one."""
        self._probing = False

    def record_answer(self, *, valid: bool) -> None:
        """Records whether an answer was valid."""
        self._invalid_answers = 0 if valid else self._invalid_answers + 1
        if self._invalid_answers >= FAILURES_TO_OPEN:
            self.reason = "its answers were invalid"
            self._invalid_answers = FAILURES_TO_OPEN - 1  # after the cool-down, one more invalid answer opens it again
            self._open()

    def _open(self) -> None:
        self._opened_at, self._probing = self._clock(), False
