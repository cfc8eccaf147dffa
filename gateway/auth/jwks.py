"""Public keys of a JWT issuer (JWKS), cached and refreshed when a token names an unknown key."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from services.common.errors import InvalidRequest

log = structlog.get_logger(__name__)

MIN_REFRESH_SECONDS = 60.0
"""Minimum time between two fetches."""

MAX_AGE_SECONDS = 3600.0
"""Maximum age of the keys; refreshed after it even if all tokens are known, because issuers withdraw keys."""

FETCH_TIMEOUT_SECONDS = 5.0
MAX_BYTES = 1_000_000

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Jwks:
    """Keys of an issuer by key id.

    Args:
        location: an https URL, an http URL on this machine, or a file.
        clock: monotonic time in seconds.

    Raises:
        InvalidRequest: the location is none of these.
    """

    def __init__(self, location: str, clock: Callable[[], float] = time.monotonic) -> None:
        _check(location)
        self._location = location
        self._clock = clock
        self._keys: Mapping[str, PyJWK] = {}
        self._last_fetch: float | None = None
        self._refresh_lock = asyncio.Lock()

    async def key(self, kid: str) -> PyJWK | None:
        """Returns the key with the id; for a token without an id, the only key."""
        if self._lookup(kid) is None or self._is_older(MAX_AGE_SECONDS):
            async with self._refresh_lock:
                if self._is_older(MIN_REFRESH_SECONDS) and (
                    self._lookup(kid) is None or self._is_older(MAX_AGE_SECONDS)
                ):
                    await self._fetch()
        return self._lookup(kid)

    def _lookup(self, kid: str) -> PyJWK | None:
        if not kid and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _is_older(self, seconds: float) -> bool:
        return self._last_fetch is None or self._clock() - self._last_fetch >= seconds

    async def _fetch(self) -> None:
        """Fetches the keys; on failure the cached keys stay in use."""
        self._last_fetch = self._clock()
        try:
            self._keys = _read(await self._content())
        except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError) as error:
            log.warning("cannot fetch JWKS; using cached keys", location=self._location, error=str(error))

    async def _content(self) -> bytes:
        if "://" not in self._location:
            return await asyncio.to_thread(Path(self._location).read_bytes)
        content = bytearray()
        async with (
            asyncio.timeout(FETCH_TIMEOUT_SECONDS),
            httpx.AsyncClient(follow_redirects=False) as client,
            client.stream("GET", self._location) as reply,
        ):
            reply.raise_for_status()
            async for chunk in reply.aiter_bytes():
                content += chunk
                if len(content) > MAX_BYTES:
                    raise ValueError(f"the JWKS is larger than {MAX_BYTES} bytes")
        return bytes(content)


def _read(content: bytes) -> dict[str, PyJWK]:
    """Parses the signature keys of a JWKS; other keys are ignored."""
    found = dict[str, PyJWK]()
    for entry in json.loads(content)["keys"]:
        if (key := _public(entry)) is not None:
            found[str(entry.get("kid", ""))] = key
    if not found:
        raise ValueError("the JWKS contains no usable signature key")
    return found


def _public(entry: Mapping[str, Any]) -> PyJWK | None:
    if entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
        return None
    try:
        return PyJWK(dict(entry))
    except PyJWTError:
        return None


def _check(location: str) -> None:
    parts = urlsplit(location)
    if "://" in location and not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
        raise InvalidRequest(
            f"cannot fetch the issuer's keys from {location}: neither https nor a file",
            remedy="set GATEWAY_JWT_JWKS to an https URL, or to the path of a file",
        )
