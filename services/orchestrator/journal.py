"""What is kept of runs: their rows, their numbered events, commands for them, and idempotency keys.

Whoever owns a run writes under its fence: a number that grows with every change of owner, so that an owner that was
taken for dead cannot write any more. Others only leave commands. Times of leases are the database's.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Collection, Sequence

from protos.hugginggpt.v1.types_pb2 import RUN_STATE_COMPLETED, RUN_STATE_QUEUED, Caller, RunEvent, RunState
from services.orchestrator.tables import ENDED, NewRun, Row
from services.runtime.database import Database
from services.runtime.errors import AlreadyExists, FailedPrecondition, NotFound, Unavailable

IDEMPOTENCY_SECONDS = 24 * 3600

_ALIVE = f"state < {RUN_STATE_COMPLETED}"
_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
"""Seconds since the epoch by the database's clock, to the millisecond."""


class LeaseLost(Unavailable):
    """Another orchestrator owns the run now."""

    reason = "LEASE_LOST"


_COLUMNS = "id, tenant, conversation_id, parent_id, state, request, created, deadline, caller, seq, owner, fence"


class Journal:
    """The journal in SQLite, for one owner.

    Args:
        database: opened with SCHEMA and MIGRATIONS.
        owner: who writes; unique among all orchestrators.
        lease_seconds: how long a run stays the owner's without renewal.
    """

    def __init__(self, database: Database, owner: str, lease_seconds: float) -> None:
        self._database = database
        self._owner = owner
        self._lease = lease_seconds

    def accept(self, run: NewRun) -> "asyncio.Future[str]":
        """Keeps a new run and its first event; gives the run's id, an earlier one if the idempotency key is known.

        Raises:
            AlreadyExists: IDEMPOTENCY, the key stands for another request.
        """

        def operation(connection: sqlite3.Connection) -> str:
            tenant = run.caller.tenant
            if run.idempotency_key:
                earlier = _remembered(connection, tenant, run.idempotency_key, run.digest)
                if earlier:
                    return earlier
            connection.execute(
                f"INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, 1, {_NOW} + ?)",  # noqa: S608  # constants
                (
                    run.id,
                    tenant,
                    run.conversation_id,
                    run.parent_id,
                    RUN_STATE_QUEUED,
                    run.request,
                    time.time(),
                    run.deadline,
                    run.caller.SerializeToString(),
                    self._owner,
                    self._lease,
                ),
            )
            connection.execute("INSERT INTO events VALUES (?, 1, ?)", (run.id, run.first.SerializeToString()))
            if run.idempotency_key:
                connection.execute(
                    "INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)",
                    (tenant, run.idempotency_key, run.id, run.digest, time.time()),
                )
            return run.id

        return self._database.write(operation)

    def append(
        self, run_id: str, fence: int, events: Sequence[RunEvent], state: "RunState.ValueType"
    ) -> "asyncio.Future[None]":
        """Keeps events that carry the next numbers, and the state they lead to.

        Raises:
            LeaseLost: another owner writes by now.
        """
        rows = [(run_id, event.sequence, event.SerializeToString()) for event in events]

        def operation(connection: sqlite3.Connection) -> None:
            cursor = connection.execute(
                f"UPDATE runs SET seq = seq + ?, state = ?, lease_until = {_NOW} + ?"  # noqa: S608  # constants
                " WHERE id = ? AND fence = ? RETURNING seq",
                (len(rows), state, self._lease, run_id, fence),
            )
            row = cursor.fetchone()
            if row is None or row[0] != rows[-1][1]:
                raise LeaseLost(f"run {run_id} is another orchestrator's by now")
            connection.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)

        return self._database.write(operation)

    async def events(self, run_id: str, after: int, limit: int = 500) -> list[RunEvent]:
        """Events numbered above after, in order."""
        found = await self._database.read(
            lambda connection: connection.execute(
                "SELECT event FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?", (run_id, after, limit)
            ).fetchall()
        )
        return [RunEvent.FromString(event) for (event,) in found]

    async def row(self, run_id: str, tenant: str) -> Row:
        """A run of the tenant.

        Raises:
            NotFound: RUN.
        """
        found = await self._database.read(
            lambda connection: connection.execute(
                f"SELECT {_COLUMNS} FROM runs WHERE id = ? AND tenant = ?",  # noqa: S608  # constants
                (run_id, tenant),
            ).fetchone()
        )
        if found is None:
            raise NotFound(f"there is no run {run_id}", reason="RUN", remedy="check the id; `GET /v1/runs` lists them")
        return _row(found)

    async def rows(
        self,
        tenant: str,
        *,
        limit: int,
        before: tuple[float, str] | None = None,
        states: "Sequence[RunState.ValueType]" = (),
        conversation_id: str = "",
        created_after: float = 0.0,
    ) -> list[Row]:
        """Runs of the tenant, newest first, older than a (created, id)."""
        where, values = ["tenant = ?", "created > ?"], [tenant, created_after]
        if before:
            where.append("(created, id) < (?, ?)")
            values += before
        if states:
            where.append(f"state IN ({', '.join('?' * len(states))})")
            values += states
        if conversation_id:
            where.append("conversation_id = ?")
            values.append(conversation_id)
        query = f"SELECT {_COLUMNS} FROM runs WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT ?"  # noqa: S608  # constants
        found = await self._database.read(lambda connection: connection.execute(query, (*values, limit)).fetchall())
        return [_row(row) for row in found]

    def command(self, run_id: str, kind: str) -> "asyncio.Future[None]":
        """Leaves a wish for the owner of a run."""

        def operation(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO commands (run_id, kind, created) VALUES (?, ?, ?)", (run_id, kind, time.time())
            )

        return self._database.write(operation)

    async def commands(self) -> list[tuple[str, str]]:
        """(run id, kind) of the wishes for this owner's runs, oldest first."""
        return await self._database.read(
            lambda connection: connection.execute(
                f"SELECT run_id, kind FROM runs CROSS JOIN commands ON run_id = runs.id"  # noqa: S608  # constants
                f" WHERE owner = ? AND {_ALIVE} ORDER BY commands.id",
                (self._owner,),
            ).fetchall()
        )

    async def version(self) -> int:
        """Changes whenever anything has been committed since the last call."""
        row = await self._database.read(lambda connection: connection.execute("PRAGMA data_version").fetchone())
        return int(row[0])

    def claim(self, limit: int, held: Collection[str] = ()) -> "asyncio.Future[list[Row]]":
        """Takes runs whose owner has not renewed its lease; not those held here, where only the renewal is late."""
        ids = json.dumps(list(held))

        def operation(connection: sqlite3.Connection) -> list[Row]:
            found = connection.execute(
                f"UPDATE runs SET owner = ?, fence = fence + 1, lease_until = {_NOW} + ? WHERE id IN"  # noqa: S608  # constants
                f" (SELECT id FROM runs WHERE {_ALIVE} AND lease_until < {_NOW}"
                "   AND id NOT IN (SELECT value FROM json_each(?)) ORDER BY created LIMIT ?)"
                f" RETURNING {_COLUMNS}",
                (self._owner, self._lease, ids, limit),
            ).fetchall()
            return [_row(row) for row in found]

        return self._database.write(operation)

    def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
        """Keeps runs for another lease; gives the fences of those that are still this owner's.

        Only what is really driven may be renewed: what was accepted or claimed and then lost sight of is to be claimed.
        """
        ids = json.dumps(list(run_ids))

        def operation(connection: sqlite3.Connection) -> dict[str, int]:
            found = connection.execute(
                f"UPDATE runs SET lease_until = {_NOW} + ?"  # noqa: S608  # constants
                " WHERE id IN (SELECT value FROM json_each(?)) AND owner = ? RETURNING id, fence",
                (self._lease, ids, self._owner),
            )
            return dict(found.fetchall())

        return self._database.write(operation)

    def release(self) -> "asyncio.Future[None]":
        """Lets go of all runs of this owner, for others to claim at once."""

        def operation(connection: sqlite3.Connection) -> None:
            connection.execute(f"UPDATE runs SET lease_until = 0 WHERE owner = ? AND {_ALIVE}", (self._owner,))  # noqa: S608  # constants

        return self._database.write(operation)

    def delete(self, run_id: str, tenant: str) -> "asyncio.Future[None]":
        """Removes an ended run with its events.

        Raises:
            FailedPrecondition: RUNNING, it has not ended.
            NotFound: RUN.
        """

        def operation(connection: sqlite3.Connection) -> None:
            found = connection.execute(
                "SELECT state FROM runs WHERE id = ? AND tenant = ?", (run_id, tenant)
            ).fetchone()
            if found is None:
                raise NotFound(f"there is no run {run_id}", reason="RUN", remedy="check the id")
            if found[0] not in ENDED:
                raise FailedPrecondition(f"run {run_id} is under way", reason="RUNNING", remedy="cancel it first")
            connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))

        return self._database.write(operation)


def _remembered(connection: sqlite3.Connection, tenant: str, key: str, digest: str) -> str | None:
    connection.execute("DELETE FROM idempotency WHERE created < ?", (time.time() - IDEMPOTENCY_SECONDS,))
    found = connection.execute(
        "SELECT run_id, digest FROM idempotency WHERE tenant = ? AND key = ?", (tenant, key)
    ).fetchone()
    if found is None:
        return None
    if found[1] != digest:
        raise AlreadyExists(
            "this idempotency key was used for another request", reason="IDEMPOTENCY", remedy="use a new key"
        )
    return str(found[0])


def _row(values: tuple[object, ...]) -> Row:
    fields = dict(zip(_COLUMNS.split(", "), values, strict=True))
    return Row(**{**fields, "caller": Caller.FromString(fields["caller"])})  # type: ignore[arg-type]  # as selected
