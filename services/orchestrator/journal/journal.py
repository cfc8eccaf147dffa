"""Stores runs: rows, numbered events, commands, idempotency keys, and results for reuse.

The owner of a run writes under a fencing token, which grows with every change of owner: an owner whose lease expired
cannot write any more. Other orchestrators only write commands. Lease times are those of the database's clock.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_QUEUED, Run, RunState, TaskResult
from services.common.database import ConstraintViolation, Database, Operation, Query, Steps
from services.common.errors import FailedPrecondition, Unavailable
from services.orchestrator import metrics
from services.orchestrator.journal import statements
from services.orchestrator.journal.errors import LeaseLost, unknown_run
from services.orchestrator.journal.failed_runs import fail_run
from services.orchestrator.journal.idempotency import accept_once
from services.orchestrator.journal.row_readers import decode, run_row, single_query
from services.orchestrator.journal.row_writers import Inserts, encoded_snapshot, event_rows, memo_rows
from services.orchestrator.journal.stored_events import StoredEvents
from services.orchestrator.journal.tables import Command, EndedRun, Memo, NewRun, Row

T = TypeVar("T")


class Journal(StoredEvents):
    """The journal of runs, for one owner.

    Args:
        database: opened with SCHEMA and MIGRATIONS.
        owner: unique name among all orchestrators.
        lease_seconds: length of a lease.
        address: at which the owner serves other orchestrators.
    """

    def __init__(self, database: Database, owner: str, lease_seconds: float, address: str = "") -> None:
        super().__init__(database)
        self._owner = owner
        self._lease = lease_seconds
        self._address = address
        self._sql = statements.Statements(database.dialect)
        self._claims: set[asyncio.Future[Any]] = set()
        """Writes in flight that make runs this owner's."""
        self.accepting = asyncio.Event()
        """Set while the database accepts writes; cleared when a write fails because it is unavailable."""
        self.accepting.set()

    def accept(self, run: NewRun) -> "asyncio.Future[str]":
        """Stores a new run and its first event; returns its ID, or that of an earlier run with the same key.

        Raises:
            AlreadyExists: IDEMPOTENCY, the key was used for another request.
        """
        if run.idempotency_key:
            operation = accept_once(self._sql, run, self._new_row(run))
        else:
            operation = single_query(self.insert_run(run), lambda _: run.id)
        return self.track_claim(self._write("accept", operation, run.id))

    def insert_run(self, run: NewRun, more: Inserts = ()) -> Query:
        """The query that stores a new run of this owner, with its first event and more rows."""
        return Query(self._sql.accept, self._new_row(run), [*event_rows(run.id, [run.first]), *more], alone=True)

    def _new_row(self, run: NewRun) -> Sequence[Any]:
        """Column values of a new run."""
        return (
            *(run.id, run.caller.tenant, run.conversation_id, run.parent_id, RUN_STATE_QUEUED, run.request),
            *(time.time(), run.deadline, run.caller.SerializeToString(), run.batch.batch_id, run.batch.index),
            *(self._owner, self._address, 1, 1, self._lease),
        )

    def append(
        self,
        run_id: str,
        fence: int,
        events: Sequence[RunEvent],
        state: "RunState.ValueType",
        *,
        memos: Sequence[Memo] = (),
        more: Inserts = (),
        snapshot: Run | None = None,
        parked_until: float | None = None,
        deadline: float | None = None,
        caller: Caller | None = None,
    ) -> "asyncio.Future[None]":
        """Stores events with the next numbers, and the state after them. Repeating the call is harmless.

        Args:
            run_id: ID of the run.
            fence: fencing token of its owner.
            events: at least one.
            state: of the run.
            memos: results to store for memo().
            more: rows to insert in the same transaction.
            snapshot: state of the run after the events, if it has ended or is parked; not stored if it is large.
            parked_until: releases the run; nobody claims it before a command or this time, in seconds since the epoch.
            deadline: new deadline of the run, in seconds since the epoch.
            caller: new caller of the run.

        Raises:
            LeaseLost: another orchestrator owns the run.
            ConstraintViolation: other events have these numbers, or earlier events are missing.
        """
        first, last = events[0].sequence, events[-1].sequence
        sql: str = self._sql.append
        changed: list[Any] = [self._lease]
        if state in ENDED_RUN_STATES:
            sql, changed = self._sql.end, [self._lease, encoded_snapshot(snapshot)]
        elif parked_until is not None or deadline is not None or caller is not None:
            sql, changed = self._changes(parked_until, snapshot, deadline, caller)
        values = (len(events), state, *changed, run_id, fence, first - 1)
        inserts = [*event_rows(run_id, events), *memo_rows(memos), *more]

        def operation() -> Steps[None]:
            if (yield Query(sql, values, inserts, alone=True)):
                return
            stored = yield Query(statements.EVENT, (run_id, last))
            if stored and decode(RunEvent, stored[0][0]) == events[-1]:
                return
            if (yield Query(statements.OWNED, (run_id, fence))):
                raise ConstraintViolation(f"the stored events of run {run_id} do not end at number {first - 1}")
            raise LeaseLost(f"another orchestrator owns run {run_id}")

        return self._write("append", operation, run_id)

    def fail(self, run_id: str, fence: int, failure: Failure) -> "asyncio.Future[None]":
        """Ends a run as FAILED without reading its events, and its batch item, if it is one.

        Args:
            run_id: ID of the run.
            fence: fencing token of its owner.
            failure: of the run.

        Raises:
            LeaseLost: another orchestrator owns it, or it has ended.
        """
        return self._write("fail", fail_run(self._sql, run_id, fence, self._lease, failure), run_id)

    async def rows(
        self,
        tenant: str,
        *,
        limit: int,
        before: tuple[float, str] | None = None,
        states: "Sequence[RunState.ValueType]" = (),
        conversation_id: str = "",
        batch_id: str = "",
        created_after: float = 0.0,
        first_turns: bool = False,
    ) -> list[Row]:
        """Runs of the tenant, newest first, created before a (created, ID); runs of batch items only with batch_id."""
        sql = statements.rows(before is not None, states, bool(conversation_id), bool(batch_id), first_turns)
        batch, conversation = [batch_id] if batch_id else [], [conversation_id] if conversation_id else []
        values = (tenant, created_after, *batch, *(before or ()), *states, *conversation, limit)
        return [run_row(found) for found in await self._database.read(sql, *values)]

    async def ended(self, since: float, after: tuple[float, str], limit: int) -> list[EndedRun]:
        """Runs of all tenants that ended at or after `since`, by the database's clock, after an (ended, ID)."""
        found = await self._database.read(statements.ENDED, since, *after, limit)
        return [
            EndedRun(run_id, decode(Caller, caller) or Caller(), state, ended, RunEvent.FromString(last))
            for run_id, caller, state, ended, last in found
        ]

    def command(self, run_id: str, kind: str, payload: bytes = b"") -> "asyncio.Future[None]":
        """Stores a command for the owner of a run, unless one of its kind is stored already."""
        query = Query(statements.COMMAND_ONCE, (run_id, kind, payload, time.time(), run_id, kind), alone=True)
        return self._write("command", single_query(query, lambda _: None), run_id)

    def unpark(self, run_id: str, kind: str, payload: bytes = b"") -> "asyncio.Future[bool]":
        """Stores a command for a parked run; returns whether this command is stored.

        It is not if the run has an owner or has ended, where nobody would apply it, or if it has another command.
        """
        values = (run_id, kind, payload, time.time())

        def operation() -> Steps[bool]:
            if not (yield Query(statements.UNOWNED, (run_id,))):
                return False
            stored = yield Query(statements.RUN_COMMANDS, (run_id,))
            if not stored:
                yield Query(statements.COMMAND, values)
            return not stored or (stored[0][0], stored[0][1] or b"") == (kind, payload)

        return self._write("command", operation, run_id)

    async def has_command(self, run_id: str) -> bool:
        """Whether a command for a run is stored, applied or not."""
        return bool(await self._database.read(statements.RUN_COMMANDS, run_id))

    async def commands(self) -> list[Command]:
        """Commands for this owner's runs that have not ended, oldest first, including those already applied."""
        found = await self._database.read(statements.COMMANDS, self._owner)
        return [Command(number, run_id, kind, payload or b"") for number, run_id, kind, payload in found]

    async def memo(self, tenant: str, digest: str) -> TaskResult | None:
        """The result stored for a digest."""
        for (result,) in await self._database.read(statements.MEMO, tenant, digest):
            return TaskResult.FromString(result)
        return None

    def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        """IDs of runs whose events or commands have changed; None: any may have changed."""
        return self._database.changes()

    async def overdue(self) -> bool:
        """Whether there are runs to claim."""
        return bool(await self._database.read(self._sql.overdue))

    def claim(self, limit: int, held: Collection[str] = ()) -> "asyncio.Future[list[Row]]":
        """Claims runs whose lease has expired, and released runs with a command.

        Runs in `held` are left out: their leases are only renewed late.
        """
        values = (self._sql.texts(held), limit, self._owner, self._address, self._lease)
        query = Query(self._sql.claim, values, alone=True)
        return self.track_claim(self._write("claim", single_query(query, lambda found: list(map(run_row, found)))))

    def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
        """Renews leases; returns the fencing tokens of the runs that this owner still has.

        Only runs that are executed may be renewed: others must expire to be claimed again.
        """
        query = Query(self._sql.renew, (self._lease, self._sql.texts(run_ids), self._owner), alone=True)
        return self._write("renew", single_query(query, dict))

    async def release(self) -> None:
        """Releases all runs of this owner, for others to claim at once, including those whose claim is in flight."""
        if self._claims:
            await asyncio.wait(self._claims)
        await self._write("release", single_query(Query(self._sql.release, (self._owner,), alone=True), lambda _: None))

    def delete(self, run_id: str, tenant: str) -> "asyncio.Future[None]":
        """Deletes an ended run with its events, and the results stored for reuse.

        Raises:
            FailedPrecondition: RUNNING, it has not ended.
            NotFound: RUN.
        """

        def operation() -> Steps[None]:
            found = yield Query(statements.STATE, (run_id, tenant))
            if not found:
                raise unknown_run(run_id)
            if found[0][0] not in ENDED_RUN_STATES:
                raise FailedPrecondition(f"run {run_id} has not ended", reason="RUNNING", remedy="cancel it first")
            yield Query(statements.DELETE_MEMOS, (tenant, run_id))
            yield Query(statements.DELETE, (run_id,))
            yield Query(statements.CLEAR_OUTCOME, (b"", *found[0][1:], run_id))

        return self._write("delete", operation, run_id)

    def track_claim(self, write: "asyncio.Future[T]") -> "asyncio.Future[T]":
        """Tracks a write that makes runs this owner's, so that release() waits for it; returns it."""
        self._claims.add(write)
        write.add_done_callback(self._claims.discard)
        return write

    def _changes(
        self, parked_until: float | None, snapshot: Run | None, deadline: float | None, caller: Caller | None
    ) -> tuple[str, list[Any]]:
        """The statement of an append that changes more than numbers and state, and its values."""
        changes: dict[str, Any] = {f"lease_until = {self._database.dialect.now} + ?": self._lease}
        if parked_until is not None:
            changes = {"owner = '', owner_address = '', fence = fence + 1, lease_until = ?": parked_until}
            changes["snapshot = ?"] = encoded_snapshot(snapshot)
        if deadline is not None:
            changes["deadline = ?"] = deadline
        if caller is not None:
            changes["caller = ?"] = caller.SerializeToString()
        return statements.append(*changes), list(changes.values())

    def _write(self, kind: str, operation: Operation[T], run_id: str = "") -> "asyncio.Future[T]":
        future = self._database.write(operation, run_id)
        future.add_done_callback(partial(self._record_write, {"kind": kind}, time.perf_counter()))
        return future

    def _record_write(self, labels: dict[str, str], started: float, future: "asyncio.Future[Any]") -> None:
        metrics.journal_seconds.record(time.perf_counter() - started, labels)
        if future.cancelled():  # by the caller: this shows nothing about the database
            return
        error = future.exception()
        if isinstance(error, Unavailable) and not isinstance(error, LeaseLost):
            self.accepting.clear()
        else:
            self.accepting.set()
