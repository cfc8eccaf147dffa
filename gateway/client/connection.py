"""Connection settings: address, API key and certificates."""

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
