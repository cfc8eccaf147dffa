"""Processes the end of every run and batch once: releases its slot, counts its tokens and queues its webhooks.

The orchestrator's lists of ended runs and batches are polled from a position stored in the database, so that no end is
missed after downtime or processed twice by several gateways.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import grpc
import structlog
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.limits.quotas import TOKENS
from gateway.limits.usage_counters import DAY, add_usage_query, window_start
from gateway.webhooks.outbox import Outbox
from protos.hugginggpt.internal.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common import call_context
from services.common.database import Database, Query, Steps
from services.common.errors import ServiceError
from services.common.supervision import supervise

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub


OVERLAP_SECONDS = 30.0
"""Overlap of a full poll in seconds: orchestrators may commit completions out of order by a few moments."""

SHORT_OVERLAP_SECONDS = 3.0
"""Overlap of the other polls in seconds; small, because thousands of batch items can end in half a minute."""

FULL_OVERLAP_SECONDS = 10.0
"""Seconds between two full polls."""

RETENTION_SECONDS = 48 * 3600.0
"""Seconds for which processed completions are remembered; longer than the lifetime of an idempotency key."""

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
"""Longest delay between a run's end and the release of its slot, in seconds."""

PAGE = 500

_DELETE_INTERVAL_SECONDS = 3600.0
_CALL_TIMEOUT_SECONDS = 10.0


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


class CompletionWatcher:
    """Processes each end of a run or batch once, even with several gateways and after downtime.

    Args:
        stub: stub of the orchestrator.
        database: the gateway's database.
        clock: Unix time in seconds.
        counting: whether keys have limits; without limits, ends are only polled while a webhook exists.
    """

    def __init__(
        self,
        stub: "OrchestratorServiceAsyncStub",
        database: Database,
        clock: Callable[[], float] = time.time,
        *,
        counting: bool = True,
    ) -> None:
        self._stub = stub
        self._database = database
        self._clock = clock
        self._counting = counting
        self._outbox = Outbox(database)
        self._runs = CursorFollower(
            database, "ended runs", self._ended_runs, key=_run_key, on_completion=self._record_run, clock=clock
        )
        self._batches = CursorFollower(
            database,
            "ended batches",
            self._ended_batches,
            key=_batch_key,
            on_completion=self._outbox.add_batch,
            clock=clock,
        )
        self._last_deletion = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Polls within the block."""
        polling = asyncio.create_task(supervise(self._poll_periodically, name="ended runs"), name="ended-runs")
        try:
            yield
        finally:
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling

    async def poll(self) -> None:
        """Processes the runs and batches that have ended since the last poll.

        Raises:
            ServiceError: the database is unavailable.
            grpc.aio.AioRpcError: the orchestrator is unavailable.
        """
        first = await self._outbox.earliest_webhook()
        if self._counting or first is not None:
            await self._runs.poll(0.0 if self._counting else first or 0.0)
        if first is not None:
            await self._batches.poll(first)

    async def _poll_periodically(self) -> None:
        while True:
            try:
                await self.poll()
                await self._delete_old()
            except (ServiceError, grpc.aio.AioRpcError) as error:
                log.warning("cannot process ended runs; retrying", error=str(error))
            await asyncio.sleep(POLL_SECONDS)

    async def _ended_runs(self, ended_after: float, token: str) -> tuple[Sequence[pb.EndedRun], str]:
        request = pb.ListEndedRunsRequest(page_size=PAGE, page_token=token)
        request.ended_after.FromMicroseconds(int(ended_after * 1e6))
        page = await self._stub.ListEndedRuns(request, timeout=_CALL_TIMEOUT_SECONDS, metadata=call_context.metadata())
        return page.runs, page.next_page_token

    async def _ended_batches(self, ended_after: float, token: str) -> tuple[Sequence[pb.EndedBatch], str]:
        request = pb.ListEndedBatchesRequest(page_size=PAGE, page_token=token)
        request.ended_after.FromMicroseconds(int(ended_after * 1e6))
        page = await self._stub.ListEndedBatches(
            request, timeout=_CALL_TIMEOUT_SECONDS, metadata=call_context.metadata()
        )
        return page.batches, page.next_page_token

    def _record_run(self, run: pb.EndedRun) -> Steps[None]:
        yield from self._outbox.add(run)
        yield Query("DELETE FROM admitted_runs WHERE run_id = ?", (run.run_id,))
        tokens = run.usage.input_tokens + run.usage.output_tokens
        if run.caller.key_id and tokens:
            yield add_usage_query(run.caller.key_id, TOKENS, window_start(completion_time(run), DAY), tokens)

    async def _delete_old(self) -> None:
        """Deletes expired rows once an hour."""
        now = self._clock()
        if now - self._last_deletion < _DELETE_INTERVAL_SECONDS:
            return
        self._last_deletion = now

        def operation() -> Steps[None]:
            yield Query("DELETE FROM admitted_runs WHERE until < ?", (now,))
            yield Query("DELETE FROM key_usage WHERE began < ?", (int(now) - 2 * DAY,))

        await self._database.write(operation)
        await self._runs.delete_old()
        await self._batches.delete_old()


def _run_key(run: pb.EndedRun) -> str:
    """Key of an ended run; empty for a batch item without token usage, which has no slot and no notification."""
    bare = run.caller.priority == PRIORITY_BATCH and not (run.usage.input_tokens or run.usage.output_tokens)
    return "" if bare else run.run_id


def _batch_key(batch: pb.EndedBatch) -> str:
    """Key of an ended batch; each round of a resumed batch ends separately."""
    return f"{batch.batch_id}/{batch.round}"
