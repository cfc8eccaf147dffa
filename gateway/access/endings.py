"""Follows runs to their ends: their places become free, the tokens they took are counted, and whoever asked is told."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import structlog

from gateway.access.quotas import TOKENS
from gateway.access.windows import DAY, beginning, counted
from gateway.webhooks.outbox import Outbox
from protos.hugginggpt.v1 import orchestrator_pb2 as pb
from services.runtime import caller
from services.runtime.database import Database, Query, Steps
from services.runtime.errors import ServiceError

if TYPE_CHECKING:
    from protos.hugginggpt.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""How long after a run's end its place is free, at most."""

OVERLAP_SECONDS = 30.0
"""How far back each look goes: two orchestrators keep what they write a moment apart."""

KEPT_SECONDS = 48 * 3600.0
"""How long it is known which runs have ended: longer than an idempotency key stands for one."""

PAGE = 500

_TIDY_SECONDS = 3600.0
_CALL_SECONDS = 10.0
_CURSOR = "ended runs"


class Endings:
    """Each run's end counts once, whichever gateway sees it, and also when none was there.

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
        self._tidied = 0.0

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Follows them within the block."""
        following = asyncio.create_task(self._follow(), name="ended-runs")
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def look(self) -> None:
        """Counts the runs that have ended since the last look, and has them told of.

        Raises:
            ServiceError: the database does not answer.
            grpc.aio.AioRpcError: the orchestrator does not.
        """
        first = 0.0 if self._counting else await self._outbox.since()
        if first is None:
            return
        since, token = max(first, await self._position()), ""
        latest = since
        while True:
            request = pb.ListEndedRequest(page_size=PAGE, page_token=token)
            request.ended_after.FromMicroseconds(int(max(0.0, since - OVERLAP_SECONDS) * 1e6))
            page = await self._stub.ListEnded(request, timeout=_CALL_SECONDS, metadata=caller.metadata())
            await self._count(page.runs)
            latest = max([latest, *(run.ended.ToMicroseconds() / 1e6 for run in page.runs)])
            token = page.next_page_token
            if not token:
                break
        if latest > since:
            await self._database.write(lambda: _kept(latest))

    async def _follow(self) -> None:
        while True:
            try:
                await self.look()
                await self._tidy()
            except (ServiceError, grpc.aio.AioRpcError) as error:
                log.warning("ended runs are counted later", error=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _position(self) -> float:
        rows = await self._database.read("SELECT position FROM cursors WHERE name = ?", _CURSOR)
        return float(rows[0][0]) if rows else self._clock() - DAY

    async def _count(self, runs: Sequence[pb.EndedRun]) -> None:
        known = await self._known([run.run_id for run in runs])
        for run in runs:
            if run.run_id not in known:
                await self._database.write(lambda run=run: self._ended(run))  # type: ignore[misc]  # its type is the loop's

    async def _known(self, run_ids: Sequence[str]) -> set[str]:
        dialect = self._database.dialect
        select = f"SELECT run_id FROM ended_runs WHERE run_id {dialect.among}"  # noqa: S608  # of constants
        return {run_id for (run_id,) in await self._database.read(select, dialect.texts(run_ids))}

    def _ended(self, run: pb.EndedRun) -> Steps[None]:
        yield Query(self._database.dialect.lock, (run.run_id,))
        insert = "INSERT INTO ended_runs (run_id, seen) VALUES (?, ?) ON CONFLICT (run_id) DO NOTHING RETURNING run_id"
        if not (yield Query(insert, (run.run_id, self._clock()))):
            return
        yield from self._outbox.add(run)
        yield Query("DELETE FROM admitted_runs WHERE run_id = ?", (run.run_id,))
        tokens = run.usage.input_tokens + run.usage.output_tokens
        if run.caller.key_id and tokens:
            yield counted(run.caller.key_id, TOKENS, beginning(run.ended.ToMicroseconds() / 1e6, DAY), tokens)

    async def _tidy(self) -> None:
        """Drops now and then what nobody asks for any more."""
        now = self._clock()
        if now - self._tidied < _TIDY_SECONDS:
            return
        self._tidied = now

        def operation() -> Steps[None]:
            yield Query("DELETE FROM ended_runs WHERE seen < ?", (now - KEPT_SECONDS,))
            yield Query("DELETE FROM admitted_runs WHERE until < ?", (now,))
            yield Query("DELETE FROM key_usage WHERE began < ?", (int(now) - 2 * DAY,))

        await self._database.write(operation)


def _kept(position: float) -> Steps[None]:
    upsert = (
        "INSERT INTO cursors (name, position) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET position = excluded.position"
    )
    yield Query(upsert, (_CURSOR, repr(position)), alone=True)
