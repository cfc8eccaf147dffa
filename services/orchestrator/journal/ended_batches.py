"""Lists the ended batches of all tenants, for webhooks."""

from typing import Any

from protos.hugginggpt.internal.v1.orchestrator_pb2 import EndedBatch
from protos.hugginggpt.v1.batch_pb2 import BatchCounts, BatchSpec
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.database import Database
from services.orchestrator.journal.batch_items import BatchItemStore
from services.orchestrator.journal.batch_rows import batch_counts
from services.orchestrator.journal.queries import decode
from services.orchestrator.paging import to_timestamp

MAX_CACHED = 1_000
"""Ended batches whose counts are cached: a follower requests the last ones repeatedly."""

_ENDED = (
    "SELECT id, round, caller, spec, state, total, created, ended FROM batches"  # noqa: S608  # of constants
    f" WHERE state >= {RUN_STATE_COMPLETED} AND ended > 0 AND ended >= ? AND (ended, id) > (?, ?)"
    " ORDER BY ended, id LIMIT ?"
)


class EndedBatches:
    """Ended batches in the order of their ends."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._items = BatchItemStore(database)
        self._counts: dict[tuple[str, int], BatchCounts] = {}

    async def since(self, moment: float, after: tuple[float, str], limit: int) -> list[tuple[float, EndedBatch]]:
        """Batches that ended at or after `moment` (seconds since the epoch), after an (ended, ID); with their ends."""
        found = await self._database.read(_ENDED, moment, *after, limit)
        return [(row[-1], await self._ended_batch(*row)) for row in found]

    async def _ended_batch(self, id_: str, round_: int, caller: bytes, spec: bytes, *row: Any) -> EndedBatch:
        state, total, created, ended = row
        pipeline = (decode(BatchSpec, spec) or BatchSpec()).pipeline
        batch = EndedBatch(
            batch_id=id_,
            round=round_,
            caller=decode(Caller, caller),
            state=state,
            pipeline=pipeline if pipeline.name else None,
            counts=await self._cached_counts(id_, round_, total),
        )
        batch.create_time.CopyFrom(to_timestamp(created))
        batch.end_time.CopyFrom(to_timestamp(ended))
        return batch

    async def _cached_counts(self, id_: str, round_: int, total: int) -> BatchCounts:
        known = self._counts.get((id_, round_))
        if known is None:
            if len(self._counts) >= MAX_CACHED:
                self._counts.clear()
            found = await self._items.counts(id_, since=0.0)
            known = self._counts[id_, round_] = batch_counts(total, found)
        return known
