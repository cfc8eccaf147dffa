"""What has been written, told to other processes by NOTIFY: after the commits, many at once, from one connection.

Within the transactions it would make them commit one after the other: NOTIFY holds a lock of the whole database until
then.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

from services.common.database.dsn import FAILURES, Connection, Place, failure
from services.common.supervision import supervise

SURE_SECONDS = 1.0
"""How often anything may have changed, for a notice may be lost."""

_PAUSE_SECONDS = 0.02
"""How long notices are gathered while many come."""
_RECONNECT_SECONDS = 0.5
_MOST = 200
"""Names in one notice, which PostgreSQL limits to 8,000 bytes; more are told as none: anything may have changed."""


class Notices:
    """One connection that tells and listens, made anew when it is lost."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._channel = f"{place.schema}_changes"
        self._told: set[str] = set()
        self._stirred = asyncio.Event()
        self._inboxes: set[_Inbox] = set()
        self._worker = asyncio.create_task(
            supervise(self._work, name="database change notifications", pause=_RECONNECT_SECONDS),
            name="database-notices",
        )

    def tell(self, about: str) -> None:
        """Tells all processes, this one too, that something has been written about that."""
        if len(self._told) <= _MOST:
            self._told.add(about)
        self._stirred.set()

    async def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        """What has been told by anyone; None at the start, every second, and when something may have been missed."""
        inbox = _Inbox()
        self._inboxes.add(inbox)
        try:
            sure_at = 0.0
            while not self._worker.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, sure_at - time.monotonic())):  # wait_for swallows cancellation
                        await inbox.stirred.wait()
                heard = inbox.taken()
                if heard is None or time.monotonic() >= sure_at:
                    heard, sure_at = None, time.monotonic() + SURE_SECONDS
                yield heard
        finally:
            self._inboxes.discard(inbox)

    async def close(self) -> None:
        """Stops; others will see what has not been told yet within a second."""
        self._worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._worker

    async def _work(self) -> None:
        while True:
            connection = await self._place.connect()
            try:
                await self._speak(connection)
            except FAILURES as error:
                raise failure(error, self._place.text) from error
            finally:
                connection.terminate()
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _speak(self, connection: Connection) -> None:
        connection.add_termination_listener(lambda _: self._stirred.set())
        await connection.add_listener(self._channel, lambda *heard: self._hear(str(heard[3])))
        self._hear("")
        while not connection.is_closed():
            await self._stirred.wait()
            self._stirred.clear()
            if self._told:
                told, self._told = self._told, set()
                names = ",".join(told) if len(told) <= _MOST else ""
                await connection.execute("SELECT pg_notify($1, $2)", self._channel, names)
                await asyncio.sleep(_PAUSE_SECONDS)

    def _hear(self, names: str) -> None:
        for inbox in self._inboxes:
            inbox.put(names)


class _Inbox:
    def __init__(self) -> None:
        self.stirred = asyncio.Event()
        self._names: set[str] | None = set()

    def put(self, names: str) -> None:
        if not names:
            self._names = None
        elif self._names is not None:
            self._names.update(names.split(","))
        self.stirred.set()

    def taken(self) -> frozenset[str] | None:
        names, self._names = self._names, set()
        self.stirred.clear()
        return None if names is None else frozenset(names)
