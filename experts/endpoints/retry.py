"""How often an endpoint is asked again, and for how long that pays."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from services.common.errors import Unavailable

T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """What is asked again is only what is not there: whoever limits rates or fails is left alone at once."""

    attempts: int = 3
    first_pause: float = 0.5
    """Seconds; it doubles, with jitter, and what the endpoint asks for prolongs it."""
    longest_pause: float = 10.0
    """Seconds; who asks for more is left alone, and the caller told when to come back."""

    async def asking(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What an attempt gives in the end.

        Raises:
            ServiceError: of the last one.
        """
        backoff = wait_random_exponential(multiplier=self.first_pause, max=self.longest_pause)

        def pause(state: RetryCallState) -> float:
            return max(backoff(state), _wanted(state))

        def enough(state: RetryCallState) -> bool:
            return state.attempt_number >= self.attempts or _wanted(state) > self.longest_pause

        async def once() -> T:
            return await attempt()

        retrying = AsyncRetrying(retry=retry_if_exception_type(Unavailable), wait=pause, stop=enough, reraise=True)
        result: T = await retrying(once)
        return result


def _wanted(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    after = error.retry_after if isinstance(error, Unavailable) else None
    return after.total_seconds() if after else 0.0
