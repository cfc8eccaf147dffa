"""Connection settings: address, API key, certificates and retry policy."""

import os
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from gateway.client.errors import (
    HuggingGPTError,
    InvalidRequest,
    RateLimited,
    Refused,
    ServerError,
    Unreachable,
    unreachable,
)

URL, API_KEY = "HUGGINGGPT_URL", "HUGGINGGPT_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"

GREETING_SECONDS = 5.0
SILENCE_SECONDS = 60.0
"""Read timeout; gateways send comments on silent streams more often."""

_KEY_REMEDY = "copy it exactly, without spaces or line breaks"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Connection:
    """Connection settings of a gateway."""

    url: str
    api_key: str
    verify: ssl.SSLContext | bool

    @classmethod
    def to(cls, url: str | None, api_key: str | None, *, verify: ssl.SSLContext | bool) -> "Connection":
        """Creates settings, with defaults from the environment.

        Raises:
            InvalidRequest: URL or API_KEY, the value is invalid.
        """
        address = (url or os.environ.get(URL) or DEFAULT_URL).rstrip("/")
        key = os.environ.get(API_KEY, "") if api_key is None else api_key
        _host(address)
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise InvalidRequest("the API key contains invalid characters", code="API_KEY", remedy=_KEY_REMEDY)
        return cls(address, key, verify)

    def settings(self) -> dict[str, Any]:
        """Settings of an httpx client."""
        return {
            "base_url": self.url,
            "timeout": httpx.Timeout(SILENCE_SECONDS, connect=GREETING_SECONDS),
            "headers": {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {},
            "trust_env": _host(self.url) not in _LOOPBACK,  # no proxy for this machine
            "verify": httpx.create_ssl_context(self.verify),  # also reads SSL_CERT_FILE
        }


def _host(url: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts.hostname
    raise InvalidRequest(f"{url} is not a valid gateway URL", code="URL", remedy=f"use a URL such as {DEFAULT_URL}")


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
