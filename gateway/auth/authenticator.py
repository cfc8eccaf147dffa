"""Authenticates requests by the bearer token in the Authorization header, or in the metadata of a gRPC call.

A network with many failures gets 429 instead of 401.
"""

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

from gateway.auth.api_keys import PREFIX, ApiKeyCache, Key, parts
from gateway.auth.identity import LOCAL_ADMIN, Identity, Limits
from services.common.errors import Overloaded, Unauthenticated

_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,8192})", re.IGNORECASE)

MAX_FAILURES = 10
"""Failed attempts of one network per window that are answered with 401; further ones with 429."""

WINDOW_SECONDS = 60.0

MAX_NETWORKS = 10_000
"""Maximum number of networks tracked; the oldest windows are dropped first."""

_HOST_BITS = 64
"""Host bits of an IPv6 network, within which one client can choose its address freely."""


def token(authorization: str) -> str:
    """Extracts the token; returns an empty string if the header is absent.

    Raises:
        Unauthenticated: the header contains no bearer token.
    """
    if not authorization:
        return ""
    found = _BEARER.fullmatch(authorization.strip())
    if not found:
        raise Unauthenticated(
            "the Authorization header carries no bearer token",
            remedy="send Authorization: Bearer, a space, and the key",
        )
    return found[1]


class AuthBackoff:
    """Counts failed attempts by network. Valid keys are never blocked: clients behind a proxy share its address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def record_failure(self, address: str) -> None:
        """Counts a failed attempt.

        Raises:
            Overloaded: RATE_LIMIT, too many failures in this window.
        """
        network, now = _network_of(address), self._clock()
        started, failures = self._windows.pop(network, (now, 0))
        if now - started >= WINDOW_SECONDS:
            started, failures = now, 0
        self._windows[network] = (started, failures + 1)
        if len(self._windows) > MAX_NETWORKS:
            self._windows.popitem(last=False)
        if failures >= MAX_FAILURES:
            raise Overloaded(
                "too many requests with an invalid API key from this address",
                reason="RATE_LIMIT",
                remedy="check the API key, and try again in a minute",
                retry_after=timedelta(seconds=started + WINDOW_SECONDS - now),
            )


def _network_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, _HOST_BITS), strict=False)) if found.version == 6 else address  # noqa: PLR2004  # IPv6


class Authenticator(Protocol):
    """Determines the identity behind a request."""

    async def authenticate(self, token: str, address: str) -> Identity:
        """Returns the identity that a token proves.

        Args:
            token: token as sent; empty if none was sent.
            address: IP address of the client.

        Raises:
            Unauthenticated: the token is missing or invalid.
            Overloaded: RATE_LIMIT, too many failures from this address.
            Unavailable: the key database is unavailable.
        """
        ...

    async def is_valid(self, identity: Identity) -> bool:
        """Whether an identity authenticated earlier is still valid.

        Raises:
            Unavailable: the key database is unavailable.
        """
        ...


class OpenAuthenticator:
    """Accepts every request as the local administrator; for a gateway that listens on loopback only."""

    async def authenticate(self, token: str, address: str) -> Identity:  # noqa: ARG002  # no authentication
        return LOCAL_ADMIN

    async def is_valid(self, identity: Identity) -> bool:  # noqa: ARG002  # no authentication
        return True


class TokenAuthenticator(Protocol):
    """Verifies tokens of an external issuer."""

    async def authenticate(self, token: str) -> Identity:
        """Returns the identity that a token proves.

        Raises:
            Unauthenticated: the token is invalid.
        """
        ...


class KeyAuthenticator:
    """Authenticates API keys and, if an issuer is configured, its JWTs.

    Args:
        cache: API keys.
        limits: default limits, for keys without limits of their own.
        tokens: verifier of the issuer's tokens; None if no issuer is configured.
        backoff: counts failures by address.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        cache: ApiKeyCache,
        limits: Limits,
        tokens: TokenAuthenticator | None = None,
        backoff: AuthBackoff | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._limits = limits
        self._tokens = tokens
        self._backoff = backoff or AuthBackoff()
        self._clock = clock

    async def authenticate(self, token: str, address: str) -> Identity:
        if not token:
            raise Unauthenticated(
                "no API key was sent",
                remedy="send Authorization: Bearer KEY, or set HUGGINGGPT_API_KEY (hugginggpt keys create makes one)",
            )
        try:
            if self._tokens and not token.startswith(PREFIX):
                return await self._tokens.authenticate(token)
            return await self._authenticate_key(token)
        except Unauthenticated:
            self._backoff.record_failure(address)
            raise

    async def is_valid(self, identity: Identity) -> bool:
        """Whether the identity's key is still active; JWTs and signed links are valid until they expire."""
        key = await self._cache.find(identity.key_id)
        return key is None or (key.state(self._clock()) == "active" and key.terms.tenant == identity.tenant)

    async def _authenticate_key(self, token: str) -> Identity:
        sent = parts(token)
        key = await self._cache.find(sent[0]) if sent else None
        if not sent or not key or not key.matches(sent[1]):
            raise Unauthenticated("invalid API key", remedy="check that the key was copied completely")
        state = key.state(self._clock())
        if state != "active":
            raise Unauthenticated(
                f"the API key {key.id} is {state}", remedy="ask the operator for a new key (hugginggpt keys create)"
            )
        return self._identity_of(key)

    def _identity_of(self, key: Key) -> Identity:
        limits: Mapping[str, int] = {**self._limits.model_dump(), **key.terms.limits}
        return Identity(key.terms.tenant, key.id, key.terms.policy, key.terms.admin, Limits(**limits))
