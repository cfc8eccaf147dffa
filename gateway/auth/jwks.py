"""An issuer's public keys: kept, and fetched again when a token names one that is not among them."""

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

AGAIN_SECONDS = 60.0
"""Least time between two fetches."""

OLD_SECONDS = 3600.0
"""After which they are fetched again though all tokens are known, since keys are also withdrawn."""

FETCH_SECONDS = 5.0
MOST_BYTES = 1_000_000

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Jwks:
    """Keys by their id.

    Args:
        place: an https URL, one of http on this machine, or a file.

    Raises:
        InvalidRequest: the place is another.
    """

    def __init__(self, place: str, clock: Callable[[], float] = time.monotonic) -> None:
        _check(place)
        self._place = place
        self._clock = clock
        self._keys: Mapping[str, PyJWK] = {}
        self._tried: float | None = None
        self._turn = asyncio.Lock()

    async def key(self, kid: str) -> PyJWK | None:
        """The key of that id; without one, the only key there is."""
        if self._find(kid) is None or self._older(OLD_SECONDS):
            async with self._turn:
                if self._older(AGAIN_SECONDS) and (self._find(kid) is None or self._older(OLD_SECONDS)):
                    await self._fetch()
        return self._find(kid)

    def _find(self, kid: str) -> PyJWK | None:
        if not kid and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _older(self, seconds: float) -> bool:
        return self._tried is None or self._clock() - self._tried >= seconds

    async def _fetch(self) -> None:
        """What cannot be fetched leaves the keys as they are."""
        self._tried = self._clock()
        try:
            self._keys = _read(await self._content())
        except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError) as error:
            log.warning("the issuer's keys cannot be read; those known stay", place=self._place, error=str(error))

    async def _content(self) -> bytes:
        if "://" not in self._place:
            return await asyncio.to_thread(Path(self._place).read_bytes)
        content = bytearray()
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx.AsyncClient(follow_redirects=False) as client,
            client.stream("GET", self._place) as reply,
        ):
            reply.raise_for_status()
            async for chunk in reply.aiter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise ValueError("it is too long")
        return bytes(content)


def _read(content: bytes) -> dict[str, PyJWK]:
    """Keys to check signatures with; those of other kinds are left out."""
    found = dict[str, PyJWK]()
    for entry in json.loads(content)["keys"]:
        if (key := _public(entry)) is not None:
            found[str(entry.get("kid", ""))] = key
    if not found:
        raise ValueError("there is no key in it that can be used")
    return found


def _public(entry: Mapping[str, Any]) -> PyJWK | None:
    if entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
        return None
    try:
        return PyJWK(dict(entry))
    except PyJWTError:
        return None


def _check(place: str) -> None:
    parts = urlsplit(place)
    if "://" in place and not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
        raise InvalidRequest(
            f"the issuer's keys cannot be fetched safely from {place}",
            remedy="set GATEWAY_JWT_JWKS to an https URL, or to a file",
        )
