"""How often a call is made again: after ever longer pauses, and never so often that an outage grows by it."""

import time
from dataclasses import dataclass

from tenacity import AsyncRetrying, RetryCallState, wait_random_exponential

from services.orchestrator.deadline import Deadline

RESERVE = 10.0
"""Retries that are there without any calls before them: enough for one task to outlast the restart of an expert."""

EARNED = 0.2
"""What every call adds: in a lasting outage there are no more than a quarter more calls than without retries."""

REFUSALS_BEFORE_NEXT = 2
"""Refusals of one candidate after which the next is called, if another candidate can be called now."""

LONGEST_REFUSAL_WAIT_SECONDS = 1.0
"""A candidate that names a longer Retry-After is not waited for while another candidate can be called now."""

_FULL_JITTER = wait_random_exponential(multiplier=0.1, max=2.0)
_REFUSAL_JITTER = wait_random_exponential(multiplier=0.25, max=8.0)
_BATCH_REFUSAL_JITTER = wait_random_exponential(multiplier=0.25, max=2.0)
"""A task with few calls needs long pauses to outlast a busy moment; items of a batch make more calls at shorter pauses,
which keep the expert busy."""


class RetryBudget:
    """Retries that calls have earned; every retry spends one."""

    def __init__(self) -> None:
        self.left = RESERVE

    def earn(self) -> None:
        """A call is made."""
        self.left = min(RESERVE, self.left + EARNED)


def spend(*budgets: RetryBudget) -> bool:
    """Takes a retry from each, unless one of them has none left."""
    if any(budget.left < 1 for budget in budgets):
        return False
    for budget in budgets:
        budget.left -= 1
    return True


@dataclass
class CallHistory:
    """Calls of one candidate for one task."""

    calls: int = 0
    refusals: int = 0
    """Of these, how many it refused as overloaded (RESOURCE_EXHAUSTED)."""
    accepts_at: float = 0.0
    """When the Retry-After of its last refusal ends, in monotonic seconds."""
    refused_until: Deadline | None = None
    """By when it must accept a call, from its first refusal on."""

    def refused(self, retry_after: float, seconds: float) -> float:
        """Notes a refusal.

        Args:
            retry_after: seconds until it accepts calls again by its own account.
            seconds: time it has from its first refusal on.

        Returns:
            Seconds left of that time.
        """
        self.refusals += 1
        self.accepts_at = time.monotonic() + retry_after
        self.refused_until = self.refused_until or Deadline(seconds)
        return self.refused_until.left

    def seconds_refused(self) -> float:
        """Seconds until it accepts calls again by its own account; 0: now."""
        return max(0.0, self.accepts_at - time.monotonic())


def backoff(tries: int) -> float:
    """Seconds until the next call after so many: any time up to a limit that doubles with each."""
    return _pause(_FULL_JITTER, tries)


def refusal_backoff(refusals: int, retry_after: float, *, batch: bool) -> float:
    """Seconds until the next call of an expert that refuses calls as overloaded.

    Args:
        refusals: how many times it has refused.
        retry_after: seconds it named, the least that passes; a random time is added, up to 0.25 s after the first
            refusal and twice as much after each further one.
        batch: the call is for an item of a batch: the random time grows to 2 s, not to 8 s.
    """
    return retry_after + _pause(_BATCH_REFUSAL_JITTER if batch else _REFUSAL_JITTER, refusals)


def _pause(policy: wait_random_exponential, attempt: int) -> float:
    # Only the policy is tenacity's: its loop costs 18 µs of every call, and few calls fail.
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    return policy(state)
