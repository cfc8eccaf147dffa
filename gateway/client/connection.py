"""Where the gateway is, and who asks."""

import os
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from gateway.client.errors import InvalidRequest

URL, API_KEY = "HUGGINGGPT_URL", "HUGGINGGPT_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"

GREETING_SECONDS = 5.0
SILENCE_SECONDS = 60.0
"""A stream that says nothing for so long, not even a comment, is broken."""

_AS_MADE = "give it as it was made, without a stray character such as a carriage return or a space at its end"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Connection:
    """How a gateway is reached."""

    url: str
    api_key: str
    verify: ssl.SSLContext | bool

    @classmethod
    def to(cls, url: str | None, api_key: str | None, *, verify: ssl.SSLContext | bool) -> "Connection":
        """What is not given is taken from the environment.

        Raises:
            InvalidRequest: URL or API_KEY, it cannot be one.
        """
        found = (url or os.environ.get(URL) or DEFAULT_URL).rstrip("/")
        key = os.environ.get(API_KEY, "") if api_key is None else api_key
        _host(found)
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise InvalidRequest("the API key cannot be one", code="API_KEY", remedy=_AS_MADE)
        return cls(found, key, verify)

    def settings(self) -> dict[str, Any]:
        """Of an HTTP client."""
        return {
            "base_url": self.url,
            "timeout": httpx.Timeout(SILENCE_SECONDS, connect=GREETING_SECONDS),
            "headers": {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {},
            "trust_env": _host(self.url) not in _LOOPBACK,  # no proxy stands between us and this machine
            "verify": httpx.create_ssl_context(self.verify),  # reads SSL_CERT_FILE, wherever the gateway is
        }


def _host(url: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts.hostname
    raise InvalidRequest(f"{url} is no URL of a gateway", code="URL", remedy=f"give one such as {DEFAULT_URL}")
