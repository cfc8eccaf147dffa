"""Polls a list of completions and processes each exactly once, also with several gateways and after downtime."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from gateway.limits.rate_window import DAY
from services.common.database import Database, Query, Steps

OVERLAP_SECONDS = 30.0
"""Overlap of a full poll in seconds: orchestrators may commit completions out of order by a few moments."""

SHORT_OVERLAP_SECONDS = 3.0
"""Overlap of the other polls in seconds; small, because thousands of batch items can end in half a minute."""

FULL_OVERLAP_SECONDS = 10.0
"""Seconds between two full polls."""

RETENTION_SECONDS = 48 * 3600.0
"""Seconds for which processed completions are remembered; longer than the lifetime of an idempotency key."""


class Completion(Protocol):
    """The end of a run or batch, as listed by the orchestrator."""

    @property
    def end_time(self) -> Timestamp: ...


E = TypeVar("E", bound=Completion)

Pages = Callable[[float, str], Awaitable[tuple[Sequence[E], str]]]
"""Returns a page of completions since a Unix time, in order, and the token of the next page."""


class CursorFollower(Generic[E]):
    """Follows completions of one kind from a stored position.

    Args:
        database: the gateway's database.
        name: name of the stored position.
        pages: lists completions.
        key: unique key of a completion; empty to skip it.
        on_completion: statements that process a completion, run once in the transaction that records its key.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        pages: Pages[E],
        *,
        key: Callable[[E], str],
        on_completion: Callable[[E], Steps[None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._name = name
        self._pages = pages
        self._key = key
        self._on_completion = on_completion
        self._clock = clock
        self._last_full_overlap = 0.0

    async def poll(self, not_before: float = 0.0) -> None:
        """Processes the completions since the last poll.

        Args:
            not_before: Unix time before which completions are ignored.

        Raises:
            ServiceError: the database is unavailable.
            grpc.aio.AioRpcError: the orchestrator is unavailable.
        """
        since, token = max(not_before, await self._position()), ""
        latest, overlap = since, self._overlap()
        while True:
            completions, token = await self._pages(max(0.0, since - overlap), token)
            await self._record_new(completions)
            latest = max([latest, *map(completion_time, completions)])
            if not token:
                break
        if latest > since:
            await self._database.write(lambda: _move_cursor(self._name, latest))

    async def delete_old(self) -> None:
        """Deletes the keys of completions that are no longer listed.

        Raises:
            ServiceError: the database is unavailable.
        """
        before = await self._position() - RETENTION_SECONDS

        def operation() -> Steps[None]:
            yield Query("DELETE FROM ended_runs WHERE what = ? AND seen < ?", (self._name, before), alone=True)

        await self._database.write(operation)

    def _overlap(self) -> float:
        now = self._clock()
        if now < self._last_full_overlap + FULL_OVERLAP_SECONDS:
            return SHORT_OVERLAP_SECONDS
        self._last_full_overlap = now
        return OVERLAP_SECONDS

    async def _position(self) -> float:
        rows = await self._database.read("SELECT position FROM cursors WHERE name = ?", self._name)
        return float(rows[0][0]) if rows else self._clock() - DAY

    async def _record_new(self, completions: Sequence[E]) -> None:
        by_key = {key: completion for completion in completions if (key := self._key(completion))}
        known = await self._recorded(list(by_key)) if by_key else set()
        for key, completion in by_key.items():
            if key not in known:
                await self._database.write(lambda completion=completion: self._record(completion))  # type: ignore[misc]  # its type is the loop's

    async def _recorded(self, keys: Sequence[str]) -> set[str]:
        dialect = self._database.dialect
        select = f"SELECT run_id FROM ended_runs WHERE run_id {dialect.among}"  # noqa: S608  # of constants
        return {key for (key,) in await self._database.read(select, dialect.texts(keys))}

    def _record(self, completion: E) -> Steps[None]:
        key = self._key(completion)
        yield Query(self._database.dialect.lock, (key,))
        insert = (
            "INSERT INTO ended_runs (run_id, what, seen) VALUES (?, ?, ?) ON CONFLICT (run_id) DO NOTHING"
            " RETURNING run_id"
        )
        if (yield Query(insert, (key, self._name, self._clock()))):
            yield from self._on_completion(completion)


def completion_time(completion: Completion) -> float:
    """Unix time of a completion, in seconds."""
    return completion.end_time.ToMicroseconds() / 1e6


def _move_cursor(name: str, position: float) -> Steps[None]:
    upsert = (
        "INSERT INTO cursors (name, position) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET position = excluded.position"
    )
    yield Query(upsert, (name, repr(position)), alone=True)
