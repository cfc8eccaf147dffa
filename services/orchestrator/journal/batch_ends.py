"""Batches of all tenants that have ended: for whoever tells of them."""

from typing import Any

from protos.hugginggpt.internal.v1.orchestrator_pb2 import EndedBatch
from protos.hugginggpt.v1.batch_pb2 import BatchCounts, BatchSpec
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.database import Database
from services.orchestrator.journal import batch_statements as sql
from services.orchestrator.journal.batch_rows import counted, counts
from services.orchestrator.journal.row_readers import decoded
from services.orchestrator.paging import timestamp

MOST = 1_000
"""Ends whose counts are remembered: who follows asks for the last ones again and again."""

_ENDED = (
    "SELECT id, round, caller, spec, state, total, created, ended FROM batches"  # noqa: S608  # of constants
    f" WHERE state >= {RUN_STATE_COMPLETED} AND ended > 0 AND ended >= ? AND (ended, id) > (?, ?)"
    " ORDER BY ended, id LIMIT ?"
)


class BatchEnds:
    """Tells of them in the order of their ends."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts: dict[tuple[str, int], BatchCounts] = {}

    async def since(self, moment: float, after: tuple[float, str], limit: int) -> list[tuple[float, EndedBatch]]:
        """Those that ended since then, in seconds since the epoch, after an (ended, id); with when they did."""
        found = await self._database.read(_ENDED, moment, *after, limit)
        return [(row[-1], await self._told(*row)) for row in found]

    async def _told(self, id_: str, round_: int, caller: bytes, spec: bytes, *row: Any) -> EndedBatch:
        state, total, created, ended = row
        pipeline = (decoded(BatchSpec, spec) or BatchSpec()).pipeline
        told = EndedBatch(
            batch_id=id_,
            round=round_,
            caller=decoded(Caller, caller),
            state=state,
            pipeline=pipeline if pipeline.name else None,
            counts=await self._counted(id_, round_, total),
        )
        told.create_time.CopyFrom(timestamp(created))
        told.end_time.CopyFrom(timestamp(ended))
        return told

    async def _counted(self, id_: str, round_: int, total: int) -> BatchCounts:
        known = self._counts.get((id_, round_))
        if known is None:
            if len(self._counts) >= MOST:
                self._counts.clear()
            found = await self._database.read(sql.COUNTS, 0, id_)
            known = self._counts[id_, round_] = counted(total, counts(found))
        return known
