"""Reads runs and their events."""

from google.protobuf.message import DecodeError

from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.database import Database
from services.orchestrator.journal import statements
from services.orchestrator.journal.errors import unknown_run, unreadable
from services.orchestrator.journal.row_readers import decode, run_row, stored_run
from services.orchestrator.journal.tables import Row, StoredRun

PAGE_BYTES = 8 * 1024 * 1024
"""Bytes of events read at a time."""


class StoredEvents:
    """Stored runs and their events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def row(self, run_id: str, tenant: str) -> Row:
        """A run of the tenant.

        Raises:
            NotFound: RUN.
        """
        for values in await self._database.read(statements.ROW, run_id, tenant):
            return run_row(values)
        raise unknown_run(run_id)

    async def stored_run(self, run_id: str, tenant: str) -> StoredRun:
        """A run of the tenant with its snapshot.

        Raises:
            NotFound: RUN.
        """
        for values in await self._database.read(statements.ROW_AND_SNAPSHOT, run_id, tenant):
            return stored_run(values)
        raise unknown_run(run_id)

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

    async def conversation(self, run_id: str, tenant: str, max_runs: int) -> list[StoredRun]:
        """A run and those it continues, latest run first, in one query unless they are large.

        Args:
            run_id: the latest run.
            tenant: owner of the runs; those of other tenants and deleted runs end the list.
            max_runs: limit of runs.
        """
        runs: list[StoredRun] = []
        depth, remaining = 0, 1
        while remaining:
            values = (run_id, tenant, tenant, max_runs, depth, PAGE_BYTES)
            found = await self._database.read(statements.CONVERSATION, *values)
            runs += [stored_run(row) for _, _, *row in found]
            depth, remaining = (found[-1][0], found[0][1] - len(found)) if found else (depth, 0)
        return runs
