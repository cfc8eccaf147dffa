"""Closes open requests and streams when their API key is revoked or expires."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from gateway.auth.authenticator import Authenticator
from gateway.auth.identity import Identity
from services.common.errors import ServiceError, Unauthenticated
from services.common.supervision import supervise

log = structlog.get_logger(__name__)

CHECK_SECONDS = 2.0
"""Seconds between checks; a revocation takes effect within this time plus the lifetime of cached keys."""


class ActiveSessions:
    """Requests in progress, by identity.

    Args:
        authenticator: decides whether an identity is still valid.
    """

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._timeouts: dict[Identity, set[asyncio.Timeout]] = {}

    @asynccontextmanager
    async def track(self, identity: Identity) -> AsyncIterator[None]:
        """Serves a request of the identity within the block; cancels it when the identity becomes invalid.

        Raises:
            Unauthenticated: the key was revoked or has expired during the request.
        """
        timeout = asyncio.timeout(None)
        try:
            async with timeout:
                self._timeouts.setdefault(identity, set()).add(timeout)
                try:
                    yield
                finally:
                    self._forget(identity, timeout)
        except TimeoutError:
            if not timeout.expired():
                raise
            raise Unauthenticated(
                "the API key was revoked or has expired", remedy="ask the operator for a new key"
            ) from None

    @asynccontextmanager
    async def revoking(self) -> AsyncIterator[None]:
        """Checks the identities of open requests periodically within the block."""
        revocation = asyncio.create_task(
            supervise(self._revoke_periodically, name="session revocation"), name="revocation"
        )
        try:
            yield
        finally:
            revocation.cancel()
            with suppress(asyncio.CancelledError):
                await revocation

    async def revoke_invalid(self) -> None:
        """Cancels the requests of identities that are no longer valid.

        Raises:
            ServiceError: the key database is unavailable.
        """
        for identity in tuple(self._timeouts):
            if not await self._authenticator.is_valid(identity):
                for timeout in self._timeouts.get(identity, ()):
                    timeout.reschedule(asyncio.get_running_loop().time())

    async def _revoke_periodically(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.revoke_invalid()
            except ServiceError as error:
                log.warning("cannot check API keys of open requests; retrying", reason=error.reason)

    def _forget(self, identity: Identity, timeout: asyncio.Timeout) -> None:
        self._timeouts[identity].discard(timeout)
        if not self._timeouts[identity]:
            del self._timeouts[identity]
