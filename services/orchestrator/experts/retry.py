"""Retry policy of calls to experts: whether a candidate is called again after a failed call, and when."""

import random
from collections import defaultdict

from services.common.errors import DeadlineExceeded, RecoveryAction, ServiceError, recovery_action
from services.orchestrator.experts.attempts import RetryBudget, spend
from services.orchestrator.experts.candidates import CandidateAttempts, CandidateUnavailable, is_refusal
from services.orchestrator.experts.health import ExpertHealth

MAX_CALLS = 8
"""Limit of calls of one candidate for one task, including those that it refuses as overloaded."""

MAX_BATCH_CALLS = 32
"""The same limit for an item of a batch: items that compete for one expert are refused often, and no client waits for
a single item. Each address of the candidate after the first adds one call."""

REFUSALS_BEFORE_NEXT = 2
"""Refusals of one candidate after which the next candidate is called, if it can be called now."""

MAX_REFUSAL_WAIT_SECONDS = 1.0
"""A candidate with a longer Retry-After is not waited for while another candidate can be called now."""

FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.1, 2.0

FIRST_REFUSAL_BACKOFF_SECONDS, MAX_REFUSAL_BACKOFF_SECONDS, MAX_BATCH_REFUSAL_BACKOFF_SECONDS = 0.25, 8.0, 2.0
"""An interactive task makes few calls and needs long pauses to outlast a busy moment; items of a batch make more calls
at shorter pauses, which keep the expert busy."""


class RetryPolicy:
    """Decides after each failed call; shared by all runs of this process.

    tenacity does not fit: it retries one function and counts its calls in one number, while here a task moves between
    candidates and returns to them, each with its own count, Retry-After and addresses, and the decision itself may be
    another error or another candidate.

    Args:
        health: of the experts.
        overload_seconds: how long a task retries an expert that refuses calls as overloaded.
    """

    def __init__(self, health: ExpertHealth, overload_seconds: float) -> None:
        self._health, self._overload_seconds = health, overload_seconds
        self._budgets: defaultdict[str, RetryBudget] = defaultdict(RetryBudget)

    def record_call(self, current: CandidateAttempts, address: str) -> None:
        """Records the start of a call."""
        current.address = address
        current.history.calls += 1
        for budget in self._budgets_of(current):
            budget.earn()

    def next_delay(self, current: CandidateAttempts, error: ServiceError) -> float | ServiceError:
        """Decides whether the candidate is called again after an error.

        Returns:
            Seconds until its next call, or the error with which its attempts end.
        """
        if not current.address or recovery_action(error) is not RecoveryAction.RETRY:
            return error
        current.excluded.add(current.address)
        has_other = self._health.has_other_address(current.selected, current.excluded)
        retry_after = error.retry_after.total_seconds() if error.retry_after and not has_other else 0.0
        left = current.deadline.left
        if is_refusal(error):
            left = min(left, current.history.record_refusal(retry_after, self._overload_seconds))
        if self._is_exhausted(current, error, retry_after, has_other_address=has_other):
            return error
        if not has_other and self._health.seconds_left(current.selected):
            try:
                return self._health.seconds_to_probe(current)
            except CandidateUnavailable as unavailable:
                return unavailable
        if not (self._is_free(current, error) or spend(*self._budgets_of(current))):
            return error
        delay = _delay(current, error, retry_after, has_other_address=has_other)
        return delay if delay < left else error

    def _budgets_of(self, current: CandidateAttempts) -> tuple[RetryBudget, RetryBudget]:
        return current.attempts.task.retries, self._budgets[current.expert]

    def _is_free(self, current: CandidateAttempts, error: ServiceError) -> bool:
        """Whether a retry costs no budget.

        A call at the time that the expert named adds no load, nor does one that moves away from a failed address.
        """
        is_invited = is_refusal(error) and bool(error.retry_after)
        return is_invited or self._health.is_address_down(current.candidate, current.address)

    def _is_exhausted(
        self, current: CandidateAttempts, error: ServiceError, retry_after: float, *, has_other_address: bool
    ) -> bool:
        """Whether the candidate must not be called again.

        Refusals count against the limit of calls. While another candidate can be called now, this one may refuse
        twice, or once if its Retry-After is long.

        Args:
            current: the candidate.
            error: of its last call.
            retry_after: seconds; 0 if another address can be called now.
            has_other_address: another of its addresses can be called now.
        """
        history = current.history
        limit = MAX_BATCH_CALLS if current.permit.batch else MAX_CALLS
        limit += max(0, len(current.selected.endpoints) - 1)
        if history.calls >= limit or history.calls - history.refusals >= MAX_CALLS:
            return True
        if isinstance(error, DeadlineExceeded):
            return not (current.is_last or has_other_address)
        if not is_refusal(error):
            return False
        is_enough = retry_after > MAX_REFUSAL_WAIT_SECONDS or history.refusals >= REFUSALS_BEFORE_NEXT
        return is_enough and current.has_alternative()


def _delay(current: CandidateAttempts, error: ServiceError, retry_after: float, *, has_other_address: bool) -> float:
    history = current.history
    if is_refusal(error) and not has_other_address:
        return refusal_backoff(history.refusals, retry_after, batch=current.permit.batch)
    delay = backoff(history.calls)
    return retry_after + min(delay, retry_after) if retry_after else delay


def backoff(calls: int) -> float:
    """Seconds until the next call: random, up to a limit that doubles with each call made."""
    return _full_jitter(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, calls)


def refusal_backoff(refusals: int, retry_after: float, *, batch: bool) -> float:
    """Seconds until the next call of an expert that refuses calls as overloaded.

    Args:
        refusals: number of refusals so far.
        retry_after: the Retry-After in seconds, which always passes; a random time is added, up to 0.25 s after the
            first refusal and twice as much after each further one.
        batch: the call is for an item of a batch: the random time grows to 2 s instead of 8 s.
    """
    longest = MAX_BATCH_REFUSAL_BACKOFF_SECONDS if batch else MAX_REFUSAL_BACKOFF_SECONDS
    return retry_after + _full_jitter(FIRST_REFUSAL_BACKOFF_SECONDS, longest, refusals)


def _full_jitter(first: float, longest: float, attempt: int) -> float:
    """A random time up to a limit, which is `first` for attempt 1 and doubles with each further one."""
    return random.uniform(0.0, min(longest, first * 2.0 ** min(attempt - 1, 30)))  # noqa: S311  # not for cryptography
