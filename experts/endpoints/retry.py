"""Retry policy for calls to endpoints."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from services.common.errors import Unavailable

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """Retries calls to an unavailable endpoint with exponential backoff; rate limits and failures are not retried."""

    attempts: int = 3
    initial_pause: float = 0.5
    """Seconds; doubles with jitter, and is at least what the endpoint's Retry-After states."""
    max_pause: float = 10.0
    """Seconds; a longer Retry-After ends the retries and is passed to the caller."""

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Calls the attempt until it succeeds or the retries are used up.

        Raises:
            ServiceError: as raised by the last attempt.
        """
        backoff = wait_random_exponential(multiplier=self.initial_pause, max=self.max_pause)

        def pause(state: RetryCallState) -> float:
            return max(backoff(state), _retry_after(state))

        def stop(state: RetryCallState) -> bool:
            return state.attempt_number >= self.attempts or _retry_after(state) > self.max_pause

        async def once() -> T:
            return await attempt()

        retrying = AsyncRetrying(retry=retry_if_exception_type(Unavailable), wait=pause, stop=stop, reraise=True)
        result: T = await retrying(once)
        return result


def _retry_after(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    after = error.retry_after if isinstance(error, Unavailable) else None
    return after.total_seconds() if after else 0.0
