"""Follows ends of one kind: each is noted once, whichever gateway sees it, and also when none was there."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from gateway.limits.rate_window import DAY
from services.common.database import Database, Query, Steps

OVERLAP_SECONDS = 30.0
"""How far back a thorough look goes: two orchestrators keep what they write a moment apart."""

USUAL_OVERLAP_SECONDS = 3.0
"""How far back the others go: of batches there are thousands of ends in half a minute."""

THOROUGH_SECONDS = 10.0
"""From one thorough look to the next."""

KEPT_SECONDS = 48 * 3600.0
"""How long before the last end it is known which ends were noted: longer than an idempotency key stands for a run."""


class End(Protocol):
    """That something is over, as the orchestrator tells it."""

    @property
    def end_time(self) -> Timestamp: ...


E = TypeVar("E", bound=End)

Pages = Callable[[float, str], Awaitable[tuple[Sequence[E], str]]]
"""Gives a page of ends, in their order, since a moment in seconds since the epoch, and the token of the next page."""


class Following(Generic[E]):
    """What has ended, up to a stored moment.

    Args:
        database: the gateway's.
        what: names the kind.
        pages: asks for ends.
        key: what an end is known by; empty if there is nothing to note of it.
        note: what is written of an end, once.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        what: str,
        pages: Pages[E],
        *,
        key: Callable[[E], str],
        note: Callable[[E], Steps[None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._what = what
        self._pages = pages
        self._key = key
        self._note = note
        self._clock = clock
        self._thorough_at = 0.0

    async def look(self, first: float = 0.0) -> None:
        """Notes what has ended since the last look.

        Args:
            first: what ended before that is of no interest; in seconds since the epoch.

        Raises:
            ServiceError: the database does not answer.
            grpc.aio.AioRpcError: who is asked for pages does not.
        """
        since, token = max(first, await self._position()), ""
        latest, overlap = since, self._overlap()
        while True:
            ends, token = await self._pages(max(0.0, since - overlap), token)
            await self._note_new(ends)
            latest = max([latest, *map(moment, ends)])
            if not token:
                break
        if latest > since:
            await self._database.write(lambda: _moved(self._what, latest))

    async def tidy(self) -> None:
        """Forgets ends that are listed no more.

        Raises:
            ServiceError: the database does not answer.
        """
        before = await self._position() - KEPT_SECONDS

        def operation() -> Steps[None]:
            yield Query("DELETE FROM ended_runs WHERE what = ? AND seen < ?", (self._what, before), alone=True)

        await self._database.write(operation)

    def _overlap(self) -> float:
        now = self._clock()
        if now < self._thorough_at + THOROUGH_SECONDS:
            return USUAL_OVERLAP_SECONDS
        self._thorough_at = now
        return OVERLAP_SECONDS

    async def _position(self) -> float:
        rows = await self._database.read("SELECT position FROM cursors WHERE name = ?", self._what)
        return float(rows[0][0]) if rows else self._clock() - DAY

    async def _note_new(self, ends: Sequence[E]) -> None:
        fresh = {key: end for end in ends if (key := self._key(end))}
        known = await self._known(list(fresh)) if fresh else set()
        for key, end in fresh.items():
            if key not in known:
                await self._database.write(lambda end=end: self._noted(end))  # type: ignore[misc]  # its type is the loop's

    async def _known(self, keys: Sequence[str]) -> set[str]:
        dialect = self._database.dialect
        select = f"SELECT run_id FROM ended_runs WHERE run_id {dialect.among}"  # noqa: S608  # of constants
        return {key for (key,) in await self._database.read(select, dialect.texts(keys))}

    def _noted(self, end: E) -> Steps[None]:
        key = self._key(end)
        yield Query(self._database.dialect.lock, (key,))
        insert = (
            "INSERT INTO ended_runs (run_id, what, seen) VALUES (?, ?, ?) ON CONFLICT (run_id) DO NOTHING"
            " RETURNING run_id"
        )
        if (yield Query(insert, (key, self._what, self._clock()))):
            yield from self._note(end)


def moment(end: End) -> float:
    """When it was, in seconds since the epoch."""
    return end.end_time.ToMicroseconds() / 1e6


def _moved(what: str, position: float) -> Steps[None]:
    upsert = (
        "INSERT INTO cursors (name, position) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET position = excluded.position"
    )
    yield Query(upsert, (what, repr(position)), alone=True)
