"""Reads the events of runs."""

from collections import defaultdict

from google.protobuf.message import DecodeError

from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.database import Database
from services.orchestrator.journal import statements
from services.orchestrator.journal.errors import unreadable
from services.orchestrator.journal.row_readers import decode
from services.orchestrator.journal.tables import Row

PAGE_BYTES = 8 * 1024 * 1024
"""Bytes of events read at a time."""


class StoredEvents:
    """Stored events of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def events(self, run_id: str, after: int, limit: int = 500) -> list[RunEvent]:
        """Events numbered above `after`, in order; fewer at a time if they are large.

        Raises:
            CorruptData: one of them cannot be decoded.
        """
        found = await self._database.read(statements.PAGE, run_id, after, run_id, after, limit, PAGE_BYTES, after + 1)
        try:
            return [RunEvent.FromString(event) for (event,) in found]
        except DecodeError as error:
            raise unreadable(run_id) from error

    async def last_event(self, row: Row) -> RunEvent | None:
        """The last event of a run; None if it cannot be decoded."""
        for (event,) in await self._database.read(statements.EVENT, row.id, row.seq):
            return decode(RunEvent, event)
        return None

    async def conversation(self, run_id: str, tenant: str, max_runs: int) -> list[list[bytes]]:
        """Encoded events of a run and of those it continues, latest run first; deleted runs are left out.

        Args:
            run_id: the latest run.
            tenant: owner of the runs.
            max_runs: limit of runs.
        """
        runs: defaultdict[int, list[bytes]] = defaultdict(list)
        depth, seq, remaining = 0, 0, 1
        while remaining:
            values = (run_id, tenant, tenant, max_runs, depth, seq, PAGE_BYTES)
            found = await self._database.read(statements.CONVERSATION, *values)
            for depth, seq, event, _ in found:  # noqa: B007  # the next page begins after the last ones
                runs[depth].append(event)
            remaining = found[0][3] - len(found) if found else 0
        return [runs[depth] for depth in sorted(runs)]
