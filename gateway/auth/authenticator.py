"""Who may come in: with keys those that show one, without them whoever reaches this machine's loopback."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.auth.api_key_cache import KeyRing
from gateway.auth.api_keys import PREFIX, Key, parts
from gateway.auth.auth_backoff import Failures
from gateway.auth.identity import OWNER, Identity
from gateway.limits.limits import Limits
from services.common.errors import Unauthenticated


class Gate(Protocol):
    """Tells who a request comes from."""

    async def identity(self, token: str, address: str) -> Identity:
        """Whose token that is.

        Args:
            token: as it was sent; empty if none was.
            address: where the request comes from.

        Raises:
            Unauthenticated: nobody's.
            Overloaded: RATE_LIMIT, nobody's, and not the first from there.
            Unavailable: it cannot be known now.
        """
        ...

    async def stands(self, who: Identity) -> bool:
        """Whether somebody who was let in would be again.

        Raises:
            Unavailable: it cannot be known now.
        """
        ...


class OpenGate:
    """Asks nobody: for a gateway that only its own machine can reach."""

    async def identity(self, token: str, address: str) -> Identity:  # noqa: ARG002  # it asks for nothing
        return OWNER

    async def stands(self, who: Identity) -> bool:  # noqa: ARG002  # it asks for nothing
        return True


class Tokens(Protocol):
    """Knows tokens that another server has issued."""

    async def identity(self, token: str) -> Identity:
        """Whose it is.

        Raises:
            Unauthenticated: nobody's.
        """
        ...


class KeyGate:
    """Lets in who has a key, or a token of the issuer if there is one.

    Args:
        ring: the keys.
        limits: of keys that have none of their own.
        tokens: None if no issuer is configured.
    """

    def __init__(
        self,
        ring: KeyRing,
        limits: Limits,
        tokens: Tokens | None = None,
        failures: Failures | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ring = ring
        self._limits = limits
        self._tokens = tokens
        self._failures = failures or Failures()
        self._clock = clock

    async def identity(self, token: str, address: str) -> Identity:
        if not token:
            raise Unauthenticated(
                "no key was sent",
                remedy="send authorization: Bearer KEY, or set HUGGINGGPT_API_KEY; hugginggpt keys create makes one",
            )
        try:
            if self._tokens and not token.startswith(PREFIX):
                return await self._tokens.identity(token)
            return await self._of_key(token)
        except Unauthenticated:
            self._failures.count(address)
            raise

    async def stands(self, who: Identity) -> bool:
        """Of a token or a signature nobody says that it has ended before its time."""
        key = await self._ring.find(who.key_id)
        return key is None or (key.state(self._clock()) == "active" and key.terms.tenant == who.tenant)

    async def _of_key(self, token: str) -> Identity:
        sent = parts(token)
        key = await self._ring.find(sent[0]) if sent else None
        if not sent or not key or not key.fits(sent[1]):
            raise Unauthenticated("the key is not known here", remedy="check that it was copied whole")
        state = key.state(self._clock())
        if state != "active":
            raise Unauthenticated(
                f"the key {key.id} is {state}", remedy="ask the operator for another: hugginggpt keys create"
            )
        return self._holder(key)

    def _holder(self, key: Key) -> Identity:
        limits: Mapping[str, int] = {**self._limits.model_dump(), **key.terms.limits}
        return Identity(key.terms.tenant, key.id, key.terms.policy, key.terms.admin, Limits(**limits))
