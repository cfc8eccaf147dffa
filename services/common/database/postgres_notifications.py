"""Change notifications between processes by PostgreSQL's NOTIFY, batched and sent after the commits.

NOTIFY within a transaction holds a database-wide lock until the commit, which would serialize all transactions.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

from services.common.database.postgres_connection import ERRORS, Connection, PostgresAddress, translate_error
from services.common.supervision import supervise

POLL_SECONDS = 1.0
"""Interval of notifications about everything, since a NOTIFY may be lost."""

_BATCH_SECONDS = 0.02
"""How long topics are collected for one NOTIFY."""
_RECONNECT_SECONDS = 0.5
_MOST_TOPICS = 200
"""Topics in one NOTIFY, whose payload is limited to 8,000 bytes; more become an empty payload, for any topic."""


class PostgresNotifier:
    """Sends and receives notifications on one connection, which is reopened when it is lost."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._channel = f"{address.schema}_changes"
        self._pending: set[str] = set()
        self._wake_event = asyncio.Event()
        self._inboxes: set[_Inbox] = set()
        self._worker = asyncio.create_task(
            supervise(self._work, name="database change notifications", pause=_RECONNECT_SECONDS),
            name="database-notifications",
        )

    def notify(self, topic: str) -> None:
        """Notifies all processes, including this one, of a write about a topic."""
        if len(self._pending) <= _MOST_TOPICS:
            self._pending.add(topic)
        self._wake_event.set()

    async def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        """Topics written by any process; None, for any topic, at first, every second and after a lost connection."""
        inbox = _Inbox()
        self._inboxes.add(inbox)
        try:
            poll_at = 0.0
            while not self._worker.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, poll_at - time.monotonic())):  # wait_for swallows cancellation
                        await inbox.wake_event.wait()
                topics = inbox.take()
                if topics is None or time.monotonic() >= poll_at:
                    topics, poll_at = None, time.monotonic() + POLL_SECONDS
                yield topics
        finally:
            self._inboxes.discard(inbox)

    async def close(self) -> None:
        """Stops; other processes notice unsent changes by polling."""
        self._worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._worker

    async def _work(self) -> None:
        while True:
            connection = await self._address.connect()
            try:
                await self._exchange(connection)
            except ERRORS as error:
                raise translate_error(error, self._address.text) from error
            finally:
                connection.terminate()
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _exchange(self, connection: Connection) -> None:
        connection.add_termination_listener(lambda _: self._wake_event.set())
        await connection.add_listener(self._channel, lambda *received: self._receive(str(received[3])))
        self._receive("")
        while not connection.is_closed():
            await self._wake_event.wait()
            self._wake_event.clear()
            if self._pending:
                topics, self._pending = self._pending, set()
                payload = ",".join(topics) if len(topics) <= _MOST_TOPICS else ""
                await connection.execute("SELECT pg_notify($1, $2)", self._channel, payload)
                await asyncio.sleep(_BATCH_SECONDS)

    def _receive(self, payload: str) -> None:
        for inbox in self._inboxes:
            inbox.put(payload)


class _Inbox:
    """Topics received for one reader of changes()."""

    def __init__(self) -> None:
        self.wake_event = asyncio.Event()
        self._topics: set[str] | None = set()

    def put(self, payload: str) -> None:
        if not payload:
            self._topics = None
        elif self._topics is not None:
            self._topics.update(payload.split(","))
        self.wake_event.set()

    def take(self) -> frozenset[str] | None:
        topics, self._topics = self._topics, set()
        self.wake_event.clear()
        return None if topics is None else frozenset(topics)
