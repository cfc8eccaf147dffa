"""Requests under way end when the key they came with does: a stream can outlast it by hours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from gateway.auth.authenticator import Gate
from gateway.auth.identity import Identity
from services.common.errors import ServiceError, Unauthenticated
from services.common.supervision import supervise

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
"""How long a key may have ended before what came with it is ended, beside the time for which it is believed."""


class Presence:
    """Knows who is being served.

    Args:
        gate: knows whether they still may be.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._stays: dict[Identity, set[asyncio.Timeout]] = {}

    @asynccontextmanager
    async def of(self, who: Identity) -> AsyncIterator[None]:
        """Serves an identity within the block.

        Raises:
            Unauthenticated: its key has ended meanwhile.
        """
        stay = asyncio.timeout(None)
        try:
            async with stay:
                self._stays.setdefault(who, set()).add(stay)
                try:
                    yield
                finally:
                    self._leave(who, stay)
        except TimeoutError:
            if not stay.expired():
                raise
            raise Unauthenticated("the key has ended", remedy="ask the operator for another") from None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Ends within the block what is to be ended."""
        watching = asyncio.create_task(supervise(self._watch, name="ended keys"), name="presence")
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def look(self) -> None:
        """Ends what came with keys that have ended.

        Raises:
            ServiceError: it cannot be known now.
        """
        for who in tuple(self._stays):
            if not await self._gate.stands(who):
                for stay in self._stays.get(who, ()):
                    stay.reschedule(asyncio.get_running_loop().time())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except ServiceError as error:
                log.warning("which keys have ended is asked again", reason=error.reason)

    def _leave(self, who: Identity, stay: asyncio.Timeout) -> None:
        self._stays[who].discard(stay)
        if not self._stays[who]:
            del self._stays[who]
