"""Retry policy: which calls are retried, when and how often. Retries never repeat an action."""

import httpx

from gateway.client.errors import HuggingGPTError, RateLimited, Refused, ServerError, Unreachable, unreachable

TRIES, FIRST_SECONDS, MAX_SECONDS = 3, 0.25, 2.0
"""Tries of a call, first pause and longest pause."""

STREAM_TRIES = 13
"""Tries of a stream without progress: about 20 seconds, which covers a restart of the gateway."""

MAX_RETRY_AFTER = 10.0
"""Longest Retry-After that is waited for; longer ones raise the error."""

_NEVER_ARRIVED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_NOT_PROCESSED = (429, 503)


class RetryPolicy:
    """Counts failures and computes pauses with exponential backoff.

    Args:
        url: URL of the gateway, for messages.
        tries: number of failures after which the error is raised.
        retry_at_once: whether the first retry has no pause.
    """

    def __init__(self, url: str, *, tries: int = TRIES, retry_at_once: bool = False) -> None:
        self._url = url
        self._tries = tries
        self._retry_at_once = retry_at_once
        self._failures = 0

    def reset(self) -> None:
        """Resets the failures after progress."""
        self._failures = 0

    def pause(self, error: Exception | None, *, repeatable: bool = True) -> float:
        """Counts a failure; returns the seconds to wait before the next try.

        Args:
            error: the error; None if a stream ended early.
            repeatable: whether the call is idempotent.

        Raises:
            HuggingGPTError: the error, if it is not retried.
        """
        self._failures += 1
        if self._failures >= self._tries or not _is_retryable(error, repeatable=repeatable):
            raise _translate(error, self._url) from error
        retry_after = error.retry_after if isinstance(error, Refused) else None
        doublings = self._failures - 1 - self._retry_at_once
        backoff = min(FIRST_SECONDS * 2**doublings, MAX_SECONDS) if doublings >= 0 else 0.0
        return backoff if retry_after is None else retry_after


def _is_retryable(error: Exception | None, *, repeatable: bool) -> bool:
    if isinstance(error, Refused):
        is_soon = error.retry_after is None or error.retry_after <= MAX_RETRY_AFTER
        is_temporary = isinstance(error, RateLimited) or (
            isinstance(error, ServerError) and error.status in (502, 503, 504)
        )
        return is_soon and is_temporary and (repeatable or error.status in _NOT_PROCESSED)
    return repeatable or isinstance(error, _NEVER_ARRIVED)


def _translate(error: Exception | None, url: str) -> HuggingGPTError:
    if isinstance(error, HuggingGPTError):
        return error
    if isinstance(error, _NEVER_ARRIVED):
        return unreachable(url, error)
    reason = type(error).__name__ if error else "the stream ended"
    message = f"the gateway at {url} is no longer reachable: {reason}"
    return Unreachable(message, code="UNREACHABLE", remedy="check that it is running")
