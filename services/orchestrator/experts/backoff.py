"""Backoff and retry budgets of calls to experts."""

import time
from dataclasses import dataclass

from tenacity import AsyncRetrying, RetryCallState, wait_random_exponential

from services.orchestrator.deadline import Deadline

INITIAL_RETRIES = 10.0
"""Retries available before any call is made: enough for one task to outlast the restart of an expert."""

RETRIES_PER_CALL = 0.2
"""Retries that each call adds: in a long outage retries add at most a quarter to the number of calls."""

REFUSALS_BEFORE_NEXT = 2
"""Refusals of one candidate after which the next candidate is called, if it can be called now."""

MAX_REFUSAL_WAIT_SECONDS = 1.0
"""A candidate with a longer Retry-After is not waited for while another candidate can be called now."""

_FULL_JITTER = wait_random_exponential(multiplier=0.1, max=2.0)
_REFUSAL_JITTER = wait_random_exponential(multiplier=0.25, max=8.0)
_BATCH_REFUSAL_JITTER = wait_random_exponential(multiplier=0.25, max=2.0)
"""An interactive task makes few calls and needs long pauses to outlast a busy moment; items of a batch make more calls
at shorter pauses, which keep the expert busy."""


class RetryBudget:
    """Number of retries left: calls add to it, each retry takes one."""

    def __init__(self) -> None:
        self.left = INITIAL_RETRIES

    def earn(self) -> None:
        """Adds the share of one call."""
        self.left = min(INITIAL_RETRIES, self.left + RETRIES_PER_CALL)


def spend(*budgets: RetryBudget) -> bool:
    """Takes one retry from each budget; returns False, and takes none, if one of them has none left."""
    if any(budget.left < 1 for budget in budgets):
        return False
    for budget in budgets:
        budget.left -= 1
    return True


@dataclass
class CallHistory:
    """Calls of one candidate for one task, and its refusals."""

    calls: int = 0
    refusals: int = 0
    """Calls that it refused as overloaded (RESOURCE_EXHAUSTED)."""
    accepts_at: float = 0.0
    """End of the Retry-After of its last refusal, in monotonic seconds."""
    refused_until: Deadline | None = None
    """When it must have accepted a call, counted from its first refusal."""

    def refused(self, retry_after: float, seconds: float) -> float:
        """Records a refusal.

        Args:
            retry_after: the Retry-After in seconds.
            seconds: time for retries, counted from the first refusal.

        Returns:
            Seconds left of that time.
        """
        self.refusals += 1
        self.accepts_at = time.monotonic() + retry_after
        self.refused_until = self.refused_until or Deadline(seconds)
        return self.refused_until.left

    def seconds_refused(self) -> float:
        """Seconds until the Retry-After of the last refusal ends; 0: it has ended."""
        return max(0.0, self.accepts_at - time.monotonic())


def backoff(tries: int) -> float:
    """Seconds until the next call: random, up to a limit that doubles with each call made."""
    return _pause(_FULL_JITTER, tries)


def refusal_backoff(refusals: int, retry_after: float, *, batch: bool) -> float:
    """Seconds until the next call of an expert that refuses calls as overloaded.

    Args:
        refusals: number of refusals so far.
        retry_after: the Retry-After in seconds, which always passes; a random time is added, up to 0.25 s after the
            first refusal and twice as much after each further one.
        batch: the call is for an item of a batch: the random time grows to 2 s instead of 8 s.
    """
    return retry_after + _pause(_BATCH_REFUSAL_JITTER if batch else _REFUSAL_JITTER, refusals)


def _pause(policy: wait_random_exponential, attempt: int) -> float:
    # Only tenacity's wait policy is used: its retry loop costs 18 µs of every call, and few calls fail.
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    return policy(state)
