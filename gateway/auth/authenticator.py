"""Authentication of requests by API key or JWT, or none on a machine-local gateway."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.auth.api_key_cache import ApiKeyCache
from gateway.auth.api_keys import PREFIX, Key, parts
from gateway.auth.auth_backoff import AuthBackoff
from gateway.auth.identity import LOCAL_ADMIN, Identity
from gateway.limits.limits import Limits
from services.common.errors import Unauthenticated


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
