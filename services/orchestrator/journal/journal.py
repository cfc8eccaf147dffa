"""What is kept of runs: their rows, their numbered events, commands for them, idempotency keys, and results to reuse.

Whoever owns a run writes under its fence: a number that grows with every change of owner, so that an owner that was
taken for dead cannot write any more. Others only leave commands. Times of leases are the database's.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_QUEUED, RunState, TaskResult
from services.common.database import ConstraintViolation, Database, Operation, Query, Steps
from services.common.errors import FailedPrecondition, NotFound, Unavailable
from services.orchestrator import metrics
from services.orchestrator.journal import statements
from services.orchestrator.journal.errors import LeaseLost
from services.orchestrator.journal.failed_runs import failed
from services.orchestrator.journal.idempotency import once
from services.orchestrator.journal.row_readers import decoded, only, row
from services.orchestrator.journal.row_writers import Puts, kept, remembered
from services.orchestrator.journal.stored_events import StoredEvents
from services.orchestrator.journal.tables import ENDED, Command, Ended, Memo, NewRun, Row

T = TypeVar("T")


class Journal(StoredEvents):
    """The journal, for one owner.

    Args:
        database: opened with SCHEMA and MIGRATIONS.
        owner: who writes; unique among all orchestrators.
        lease_seconds: how long a run stays the owner's without renewal.
        address: where the owner answers others.
    """

    def __init__(self, database: Database, owner: str, lease_seconds: float, address: str = "") -> None:
        super().__init__(database)
        self._owner = owner
        self._lease = lease_seconds
        self._address = address
        self._sql = statements.Statements(database.dialect)
        self._taking_on: set[asyncio.Future[Any]] = set()
        """Writes by which runs become this owner's."""
        self.taking = asyncio.Event()
        """The last write came about; cleared when one fails because the database does not answer."""
        self.taking.set()

    def accept(self, run: NewRun) -> "asyncio.Future[str]":
        """Keeps a new run and its first event; gives the run's id, an earlier one if the idempotency key is known.

        Raises:
            AlreadyExists: IDEMPOTENCY, the key stands for another request.
        """
        operation = (
            once(self._sql, run, self._begun(run)) if run.idempotency_key else only(self.keeping(run), lambda _: run.id)
        )
        return self.takes_on(self._write("accept", operation, run.id))

    def keeping(self, run: NewRun, more: Puts = ()) -> Query:
        """The query that keeps a new run of this owner's, with its first event and more rows."""
        return Query(self._sql.accept, self._begun(run), [*kept(run.id, [run.first]), *more], alone=True)

    def _begun(self, run: NewRun) -> Sequence[Any]:
        """A new run's row."""
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
        more: Puts = (),
        parked_until: float | None = None,
        deadline: float | None = None,
        caller: Caller | None = None,
    ) -> "asyncio.Future[None]":
        """Keeps events that carry the next numbers, and the state they lead to. Doing it again is harmless.

        Args:
            run_id: the run.
            fence: under which it is owned.
            events: at least one.
            state: the run's.
            memos: results to be found by memo().
            more: rows to put beside.
            parked_until: lets go of the run, for nobody to claim before a command for it or this time since the epoch.
            deadline: the row's from now on, in seconds since the epoch.
            caller: the row's from now on.

        Raises:
            LeaseLost: another owner writes by now.
            Contradiction: other events are stored under these numbers, or some before them are not.
        """
        first, last = events[0].sequence, events[-1].sequence
        sql, changed = (self._sql.end if state in ENDED else self._sql.append), [self._lease]
        if parked_until is not None or deadline is not None or caller is not None:
            sql, changed = self._changes(parked_until, deadline, caller)
        values = (len(events), state, *changed, run_id, fence, first - 1)
        puts = [*kept(run_id, events), *remembered(memos), *more]

        def operation() -> Steps[None]:
            if (yield Query(sql, values, puts, alone=True)):
                return
            there = yield Query(statements.EVENT, (run_id, last))
            if there and decoded(RunEvent, there[0][0]) == events[-1]:
                return
            if (yield Query(statements.OWNED, (run_id, fence))):
                raise ConstraintViolation(f"the stored events of run {run_id} do not end at number {first - 1}")
            raise LeaseLost(f"run {run_id} is another orchestrator's by now")

        return self._write("append", operation, run_id)

    def fail(self, run_id: str, fence: int, failure: Failure) -> "asyncio.Future[None]":
        """Ends a run as FAILED without reading its events; its batch item, if it is one, fails with it.

        Args:
            run_id: the run.
            fence: under which it is owned.
            failure: why.

        Raises:
            LeaseLost: another owner has it, or it has ended.
        """
        return self._write("fail", failed(self._sql, run_id, fence, self._lease, failure), run_id)

    async def row(self, run_id: str, tenant: str) -> Row:
        """A run of the tenant.

        Raises:
            NotFound: RUN.
        """
        for values in await self._database.read(statements.ROW, run_id, tenant):
            return row(values)
        raise NotFound(f"there is no run {run_id}", reason="RUN", remedy="check the id; `GET /v1/runs` lists them")

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
        """Runs of the tenant, newest first, older than a (created, id); those of batches only by their batch."""
        sql = statements.rows(before is not None, states, bool(conversation_id), bool(batch_id), first_turns)
        batch, conversation = [batch_id] if batch_id else [], [conversation_id] if conversation_id else []
        values = (tenant, created_after, *batch, *(before or ()), *states, *conversation, limit)
        return [row(found) for found in await self._database.read(sql, *values)]

    async def ended(self, since: float, after: tuple[float, str], limit: int) -> list[Ended]:
        """Runs of all tenants that ended since then, by the database's clock; in that order, after an (ended, id)."""
        found = await self._database.read(statements.ENDED, since, *after, limit)
        return [
            Ended(run_id, decoded(Caller, caller) or Caller(), state, ended, RunEvent.FromString(last))
            for run_id, caller, state, ended, last in found
        ]

    def command(self, run_id: str, kind: str, payload: bytes = b"") -> "asyncio.Future[None]":
        """Stores a command for the owner of a run, unless one of its kind is stored already."""
        query = Query(statements.COMMAND_ONCE, (run_id, kind, payload, time.time(), run_id, kind), alone=True)
        return self._write("command", only(query, lambda _: None), run_id)

    def unpark(self, run_id: str, kind: str, payload: bytes = b"") -> "asyncio.Future[bool]":
        """Leaves a wish for a run that is parked; tells whether it is there.

        It is not if the run has an owner, has ended, or another wish came first: then nobody would fulfil it.
        """
        values = (run_id, kind, payload, time.time())

        def operation() -> Steps[bool]:
            if not (yield Query(statements.UNOWNED, (run_id,))):
                return False
            wishes = yield Query(statements.WISHES, (run_id,))
            if not wishes:
                yield Query(statements.COMMAND, values)
            return not wishes or (wishes[0][0], wishes[0][1] or b"") == (kind, payload)

        return self._write("command", operation, run_id)

    async def wished(self, run_id: str) -> bool:
        """Whether a wish was left for a run, fulfilled or not."""
        return bool(await self._database.read(statements.WISHES, run_id))

    async def commands(self) -> list[Command]:
        """The wishes for this owner's runs that have not ended, oldest first, those already fulfilled among them."""
        found = await self._database.read(statements.COMMANDS, self._owner)
        return [Command(number, run_id, kind, payload or b"") for number, run_id, kind, payload in found]

    async def memo(self, tenant: str, digest: str) -> TaskResult | None:
        """The result kept for a digest."""
        for (result,) in await self._database.read(statements.MEMO, tenant, digest):
            return TaskResult.FromString(result)
        return None

    def changes(self) -> AsyncGenerator[frozenset[str] | None]:
        """Ids of runs of which anybody has kept events or commands; None: it may be any."""
        return self._database.changes()

    async def overdue(self) -> bool:
        """Whether there is anything to claim."""
        return bool(await self._database.read(self._sql.overdue))

    def claim(self, limit: int, held: Collection[str] = ()) -> "asyncio.Future[list[Row]]":
        """Takes runs whose owner has not renewed its lease, or that have been let go of and are wanted.

        Not those held here, where only the renewal is late.
        """
        values = (self._sql.texts(held), limit, self._owner, self._address, self._lease)
        query = Query(self._sql.claim, values, alone=True)
        return self.takes_on(self._write("claim", only(query, lambda found: [row(values) for values in found])))

    def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
        """Keeps runs for another lease; gives the fences of those that are still this owner's.

        Only what is really driven may be renewed: what was accepted or claimed and then lost sight of is to be claimed.
        """
        query = Query(self._sql.renew, (self._lease, self._sql.texts(run_ids), self._owner), alone=True)
        return self._write("renew", only(query, dict))

    async def release(self) -> None:
        """Lets go of all runs of this owner, for others to claim at once; of those too that are just becoming its."""
        if self._taking_on:
            await asyncio.wait(self._taking_on)
        await self._write("release", only(Query(self._sql.release, (self._owner,), alone=True), lambda _: None))

    def delete(self, run_id: str, tenant: str) -> "asyncio.Future[None]":
        """Removes an ended run with its events, and the results that it gave others to reuse.

        Raises:
            FailedPrecondition: RUNNING, it has not ended.
            NotFound: RUN.
        """

        def operation() -> Steps[None]:
            found = yield Query(statements.STATE, (run_id, tenant))
            if not found:
                raise NotFound(f"there is no run {run_id}", reason="RUN", remedy="check the id")
            if found[0][0] not in ENDED:
                raise FailedPrecondition(f"run {run_id} is under way", reason="RUNNING", remedy="cancel it first")
            yield Query(statements.FORGET, (tenant, run_id))
            yield Query(statements.DELETE, (run_id,))
            yield Query(statements.FORGET_OUTCOME, (b"", *found[0][1:], run_id))

        return self._write("delete", operation, run_id)

    def takes_on(self, writing: "asyncio.Future[T]") -> "asyncio.Future[T]":
        """A write by which runs become this owner's: release() waits for it."""
        self._taking_on.add(writing)
        writing.add_done_callback(self._taking_on.discard)
        return writing

    def _changes(
        self, parked_until: float | None, deadline: float | None, caller: Caller | None
    ) -> tuple[str, list[Any]]:
        """What else than numbers and state an append changes in the row."""
        changes: dict[str, Any] = {f"lease_until = {self._database.dialect.now} + ?": self._lease}
        if parked_until is not None:
            changes = {"owner = '', owner_address = '', fence = fence + 1, lease_until = ?": parked_until}
        if deadline is not None:
            changes["deadline = ?"] = deadline
        if caller is not None:
            changes["caller = ?"] = caller.SerializeToString()
        return statements.append(*changes), list(changes.values())

    def _write(self, kind: str, operation: Operation[T], run_id: str = "") -> "asyncio.Future[T]":
        future = self._database.write(operation, run_id)
        future.add_done_callback(partial(self._written, {"kind": kind}, time.perf_counter()))
        return future

    def _written(self, labels: dict[str, str], started: float, future: "asyncio.Future[Any]") -> None:
        metrics.journal_seconds.record(time.perf_counter() - started, labels)
        if future.cancelled():  # by who asked: it says nothing of the database
            return
        error = future.exception()
        if isinstance(error, Unavailable) and not isinstance(error, LeaseLost):
            self.taking.clear()
        else:
            self.taking.set()
