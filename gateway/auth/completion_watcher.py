"""Polls ended runs and batches: releases run slots, counts tokens, and queues webhook deliveries."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import structlog

from gateway.auth.cursor_follower import CursorFollower, completion_time
from gateway.limits.quotas import TOKENS
from gateway.limits.rate_window import DAY, add_usage_query, window_start
from gateway.webhooks.outbox import Outbox
from protos.hugginggpt.internal.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common import call_context
from services.common.database import Database, Query, Steps
from services.common.errors import ServiceError
from services.common.supervision import supervise

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
"""Longest delay between a run's end and the release of its slot, in seconds."""

PAGE = 500

_DELETE_INTERVAL_SECONDS = 3600.0
_CALL_TIMEOUT_SECONDS = 10.0


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
