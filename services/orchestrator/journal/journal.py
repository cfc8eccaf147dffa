"""The journal of runs: the parts by resource in one class, and the writes that concern several of them.

The owner of a run writes under a fencing token, which grows with every change of owner: an owner whose lease expired
cannot write any more. Other orchestrators only write commands.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.batch_pb2 import BatchItem
from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_FAILED, RUN_STATE_QUEUED
from services.common.database import Database, Query, Steps
from services.common.errors import FailedPrecondition
from services.orchestrator.journal.batch_items import CLEAR_OUTCOME, outcome_rows
from services.orchestrator.journal.events import DELETE_MEMOS, EventStore, MemoStore, event_rows
from services.orchestrator.journal.idempotency import insert_once
from services.orchestrator.journal.leases import CommandStore, RunLeaseStore
from services.orchestrator.journal.runs import ACTIVE, NewRun, RunStore, insert_into_runs, unknown_run
from services.orchestrator.journal.store import Inserts, LeaseLost, single_query

_STATE = "SELECT state, batch_id, batch_index FROM runs WHERE id = ? AND tenant = ?"
_POSITION = (
    "SELECT last_sequence, COALESCE((SELECT MAX(sequence) FROM events WHERE run_id = runs.id), 0),"
    " batch_id, batch_index FROM runs WHERE id = ?"
)
"""The last event number by a run's row and by its events, which differ in a corrupted journal; and its batch item."""
_DELETE = "DELETE FROM runs WHERE id = ?"


class Journal(RunStore, EventStore, CommandStore, RunLeaseStore, MemoStore):
    """The journal of runs, for one owner."""

    def __init__(self, database: Database, owner: str, lease_seconds: float, address: str = "") -> None:
        super().__init__(database, owner, lease_seconds, address)
        now = database.dialect.now
        self._runs = insert_into_runs(database.dialect)
        self._insert_sql = f"{self._runs.one} RETURNING id"
        self._fail_sql = (
            f"UPDATE runs SET last_sequence = ?, state = ?, ended = {now}, lease_until = {now} + ?"  # noqa: S608  # of constants
            f" WHERE id = ? AND fence = ? AND {ACTIVE} RETURNING id"
        )

    def accept(self, run: NewRun) -> "asyncio.Future[str]":
        """Stores a new run and its first event; returns its ID, or that of an earlier run with the same key.

        Raises:
            AlreadyExists: IDEMPOTENCY, the key was used for another request.
        """
        if run.idempotency_key:
            inserts = [(self._runs, [self._new_row(run)]), *event_rows(run.id, [run.first])]
            operation = insert_once(run.caller.tenant, run.idempotency_key, run.id, run.digest, inserts)
        else:
            operation = single_query(self.insert_run(run), lambda _: run.id)
        return self.track_claim(self._write("accept", operation, run.id))

    def insert_run(self, run: NewRun, more: Inserts = ()) -> Query:
        """The query that stores a new run of this owner, with its first event and more rows."""
        return Query(self._insert_sql, self._new_row(run), [*event_rows(run.id, [run.first]), *more], alone=True)

    def _new_row(self, run: NewRun) -> tuple[object, ...]:
        """Column values of a new run."""
        return (
            *(run.id, run.caller.tenant, run.conversation_id, run.parent_id, RUN_STATE_QUEUED, run.request),
            *(time.time(), run.deadline, run.caller.SerializeToString(), run.batch.batch_id, run.batch.index),
            *(self._owner, self._address, 1, 1, self._lease_seconds),
        )

    def fail(self, run_id: str, fence: int, failure: Failure) -> "asyncio.Future[None]":
        """Ends a run as FAILED after its last event, without reading its events, and its batch item, if it is one.

        Args:
            run_id: ID of the run.
            fence: fencing token of its owner.
            failure: of the run.

        Raises:
            LeaseLost: another orchestrator owns it, or it has ended.
        """
        ended = RunEvent(run_id=run_id, run_ended=RunEnded(state=RUN_STATE_FAILED, failure=failure))
        ended.time.FromNanoseconds(time.time_ns())

        def operation() -> Steps[None]:
            for by_row, by_events, batch_id, index in (yield Query(_POSITION, (run_id,))):
                ended.sequence = max(by_row, by_events) + 1
                inserts = [*event_rows(run_id, [ended])]
                if batch_id:
                    inserts += outcome_rows(batch_id, index, run_id, RUN_STATE_FAILED, BatchItem(failure=failure))
                values = (ended.sequence, RUN_STATE_FAILED, self._lease_seconds, run_id, fence)
                if (yield Query(self._fail_sql, values, inserts)):
                    return
            raise LeaseLost(f"another orchestrator owns run {run_id}")

        return self._write("fail", operation, run_id)

    def delete(self, run_id: str, tenant: str) -> "asyncio.Future[None]":
        """Deletes an ended run with its events, and the results stored for reuse.

        Raises:
            FailedPrecondition: RUNNING, it has not ended.
            NotFound: RUN.
        """

        def operation() -> Steps[None]:
            found = yield Query(_STATE, (run_id, tenant))
            if not found:
                raise unknown_run(run_id)
            state, batch_id, index = found[0]
            if state not in ENDED_RUN_STATES:
                raise FailedPrecondition(f"run {run_id} has not ended", reason="RUNNING", remedy="cancel it first")
            yield Query(DELETE_MEMOS, (tenant, run_id))
            yield Query(_DELETE, (run_id,))
            yield Query(CLEAR_OUTCOME, (b"", batch_id, index, run_id))

        return self._write("delete", operation, run_id)

    def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        """IDs of runs whose events or commands have changed; None: any may have changed."""
        return self._database.changes()
