"""How often a call is made again: after ever longer pauses, and never so often that an outage grows by it."""

from tenacity import AsyncRetrying, RetryCallState, wait_random_exponential

RESERVE = 10.0
"""Retries that are there without any calls before them: enough for one task to outlast the restart of an expert."""

EARNED = 0.2
"""What every call adds: in a lasting outage there are no more than a quarter more calls than without retries."""

_FULL_JITTER = wait_random_exponential(multiplier=0.1, max=2.0)


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


def backoff(tries: int) -> float:
    """Seconds until the next call after so many: any time up to a limit that doubles with each."""
    # Only the policy is tenacity's: its loop costs 18 µs of every call, and few calls fail.
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = tries
    return _FULL_JITTER(state)
