"""Follows runs and batches to their ends: places become free, tokens are counted, and whoever asked for it is told."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import structlog

from gateway.auth.cursor_follower import Following, moment
from gateway.limits.quotas import TOKENS
from gateway.limits.rate_window import DAY, beginning, counted
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

LOOK_SECONDS = 1.0
"""How long after a run's end its place is free, at most."""

PAGE = 500

_TIDY_SECONDS = 3600.0
_CALL_SECONDS = 10.0


class Endings:
    """Each end counts once, whichever gateway sees it, and also when none was there.

    Args:
        stub: the orchestrator's, who knows of them.
        database: the gateway's.
        clock: seconds since the epoch.
        counting: whether keys have limits; without them only ends that somebody wants to be told of are looked for.
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
        self._runs = Following(database, "ended runs", self._ended_runs, key=_end_of_run, note=self._run, clock=clock)
        self._batches = Following(
            database,
            "ended batches",
            self._ended_batches,
            key=_end_of_batch,
            note=self._outbox.add_batch,
            clock=clock,
        )
        self._tidied = 0.0

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Follows them within the block."""
        following = asyncio.create_task(supervise(self._follow, name="ended runs"), name="ended-runs")
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def look(self) -> None:
        """Counts the runs that have ended since the last look, and has them and ended batches told of.

        Raises:
            ServiceError: the database does not answer.
            grpc.aio.AioRpcError: the orchestrator does not.
        """
        first = await self._outbox.since()
        if self._counting or first is not None:
            await self._runs.look(0.0 if self._counting else first or 0.0)
        if first is not None:
            await self._batches.look(first)

    async def _follow(self) -> None:
        while True:
            try:
                await self.look()
                await self._tidy()
            except (ServiceError, grpc.aio.AioRpcError) as error:
                log.warning("ended runs are counted later", error=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _ended_runs(self, since: float, token: str) -> tuple[Sequence[pb.EndedRun], str]:
        request = pb.ListEndedRunsRequest(page_size=PAGE, page_token=token)
        request.ended_after.FromMicroseconds(int(since * 1e6))
        page = await self._stub.ListEndedRuns(request, timeout=_CALL_SECONDS, metadata=call_context.metadata())
        return page.runs, page.next_page_token

    async def _ended_batches(self, since: float, token: str) -> tuple[Sequence[pb.EndedBatch], str]:
        request = pb.ListEndedBatchesRequest(page_size=PAGE, page_token=token)
        request.ended_after.FromMicroseconds(int(since * 1e6))
        page = await self._stub.ListEndedBatches(request, timeout=_CALL_SECONDS, metadata=call_context.metadata())
        return page.batches, page.next_page_token

    def _run(self, run: pb.EndedRun) -> Steps[None]:
        yield from self._outbox.add(run)
        yield Query("DELETE FROM admitted_runs WHERE run_id = ?", (run.run_id,))
        tokens = run.usage.input_tokens + run.usage.output_tokens
        if run.caller.key_id and tokens:
            yield counted(run.caller.key_id, TOKENS, beginning(moment(run), DAY), tokens)

    async def _tidy(self) -> None:
        """Drops now and then what nobody asks for any more."""
        now = self._clock()
        if now - self._tidied < _TIDY_SECONDS:
            return
        self._tidied = now

        def operation() -> Steps[None]:
            yield Query("DELETE FROM admitted_runs WHERE until < ?", (now,))
            yield Query("DELETE FROM key_usage WHERE began < ?", (int(now) - 2 * DAY,))

        await self._database.write(operation)
        await self._runs.tidy()
        await self._batches.tidy()


def _end_of_run(run: pb.EndedRun) -> str:
    """Nothing for an item of a batch that took no tokens: it has no place of its own, and the batch is told of."""
    bare = run.caller.priority == PRIORITY_BATCH and not (run.usage.input_tokens or run.usage.output_tokens)
    return "" if bare else run.run_id


def _end_of_batch(batch: pb.EndedBatch) -> str:
    """A batch that is resumed ends once more."""
    return f"{batch.batch_id}/{batch.round}"
