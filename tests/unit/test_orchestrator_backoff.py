"""Retry budgets, and pauses between calls."""

import pytest

from services.orchestrator.experts.attempts import INITIAL_RETRIES, RETRIES_PER_CALL, RetryBudget, spend
from services.orchestrator.experts.retry import MAX_BACKOFF_SECONDS, backoff, refusal_backoff


def test_budget_allows_its_initial_retries_and_then_a_share_of_calls() -> None:
    budget = RetryBudget()
    assert sum(spend(budget) for _ in range(100)) == INITIAL_RETRIES
    calls = 100
    retries = 0
    for _ in range(calls):
        budget.earn()
        retries += spend(budget)
    assert retries == int(calls * RETRIES_PER_CALL)


def test_budget_does_not_exceed_its_initial_retries() -> None:
    budget = RetryBudget()
    for _ in range(1000):
        budget.earn()
    assert sum(spend(budget) for _ in range(100)) == INITIAL_RETRIES


def test_retry_is_taken_from_all_budgets_or_from_none() -> None:
    empty, full = RetryBudget(), RetryBudget()
    while spend(empty):
        pass
    assert not spend(full, empty)
    assert full.left == INITIAL_RETRIES


def test_backoff_is_random_below_a_limit_that_doubles() -> None:
    for tries, limit in enumerate([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0], start=1):
        pauses = [backoff(tries) for _ in range(300)]
        assert max(pauses) <= limit
        assert max(pauses) > limit / 2 > min(pauses)


def test_backoff_stays_at_its_limit_after_many_failures() -> None:
    assert backoff(10_000) <= MAX_BACKOFF_SECONDS


@pytest.mark.parametrize(
    ("batch", "limits"), [(False, [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]), (True, [0.25, 0.5, 1.0, 2.0, 2.0])]
)
def test_backoff_after_a_refusal_is_at_least_its_retry_after(*, batch: bool, limits: list[float]) -> None:
    for refusals, limit in enumerate(limits, start=1):
        pauses = [refusal_backoff(refusals, 5.0, batch=batch) for _ in range(300)]
        assert min(pauses) >= 5.0
        assert max(pauses) <= 5.0 + limit
        assert max(pauses) > 5.0 + limit / 2
