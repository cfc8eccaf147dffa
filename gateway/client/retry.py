"""What is tried again, when, and how often: only what cannot be done twice by it."""

import httpx

from gateway.client.errors import HuggingGPTError, RateLimited, Refused, ServerError, Unreachable, unreachable

TRIES, FIRST_SECONDS, LONGEST_SECONDS = 3, 0.25, 2.0
"""Of one call: how often, the pause before the second try, and the longest before a later one."""

STREAM_TRIES = 13
"""Of a stream that tells nothing new: about 20 seconds, in which a gateway is restarted."""

LONGEST_WISH = 10.0
"""Longest wait that a gateway may ask for; of longer ones the caller decides."""

_NEVER_ARRIVED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_NOT_BEGUN = (429, 503)


class Patience:
    """Counts failures.

    Args:
        url: the gateway's, for messages.
        tries: how many failures are too many.
        hasty: the first failure is no reason to wait.
    """

    def __init__(self, url: str, *, tries: int = TRIES, hasty: bool = False) -> None:
        self._url = url
        self._tries = tries
        self._hasty = hasty
        self._failures = 0

    def restored(self) -> None:
        """Something went well."""
        self._failures = 0

    def pause(self, error: Exception | None, *, repeatable: bool = True) -> float:
        """Seconds to wait before the next try.

        Args:
            error: what went wrong; None: a stream ended too early.
            repeatable: nothing is done twice if it had been done already.

        Raises:
            HuggingGPTError: what went wrong, if there is to be no next try.
        """
        self._failures += 1
        if self._failures >= self._tries or not _worth_trying(error, repeatable=repeatable):
            raise _told(error, self._url) from error
        wished = error.retry_after if isinstance(error, Refused) else None
        doublings = self._failures - 1 - self._hasty
        backoff = min(FIRST_SECONDS * 2**doublings, LONGEST_SECONDS) if doublings >= 0 else 0.0
        return backoff if wished is None else wished


def _worth_trying(error: Exception | None, *, repeatable: bool) -> bool:
    if isinstance(error, Refused):
        soon = error.retry_after is None or error.retry_after <= LONGEST_WISH
        later = isinstance(error, RateLimited) or (isinstance(error, ServerError) and error.status in (502, 503, 504))
        return soon and later and (repeatable or error.status in _NOT_BEGUN)
    return repeatable or isinstance(error, _NEVER_ARRIVED)


def _told(error: Exception | None, url: str) -> HuggingGPTError:
    if isinstance(error, HuggingGPTError):
        return error
    if isinstance(error, _NEVER_ARRIVED):
        return unreachable(url, error)
    what = type(error).__name__ if error else "it says no more"
    message = f"the gateway at {url} does not answer any more: {what}"
    return Unreachable(message, code="UNREACHABLE", remedy="is it still running?")
