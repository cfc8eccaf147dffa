"""Leases of runs, and commands to their owners.

Each claim raises the run's fencing token, so that an owner whose lease expired cannot write any more. Lease times are
those of the database's clock. Other orchestrators only write commands, to cancel a run or to execute its approved plan;
the owner turns them into events.
"""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from services.common.database import Database, Query, Steps
from services.orchestrator.journal.runs import ACTIVE, RUN_COLUMNS, RunRow, run_row
from services.orchestrator.journal.store import Store, single_query

T = TypeVar("T")

_RELEASE = f"UPDATE runs SET lease_until = 0 WHERE owner = ? AND {ACTIVE}"

CANCEL, APPROVE = "cancel", "approve"
"""Kinds of commands: cancel the run, or approve its plan."""

_INSERT = "INSERT INTO commands (run_id, kind, payload, created) VALUES (?, ?, ?, ?)"
_INSERT_ONCE = (
    "INSERT INTO commands (run_id, kind, payload, created) SELECT ?, ?, ?, ?"
    " WHERE NOT EXISTS (SELECT 1 FROM commands WHERE run_id = ? AND kind = ?)"
)
_LOCK_UNOWNED = f"UPDATE runs SET fence = fence WHERE id = ? AND owner = '' AND {ACTIVE} RETURNING id"
"""Changes nothing, but prevents owners from claiming the run until the transaction ends."""
_OF_RUN = "SELECT kind, payload FROM commands WHERE run_id = ? ORDER BY id"
_OF_OWNER = (
    "SELECT id, run_id, kind, payload FROM commands WHERE run_id IN"
    f" (SELECT id FROM runs WHERE {ACTIVE} AND owner = ?) ORDER BY id"
)


class Lease(Protocol):
    """The right to execute a run or batch, until it expires or another process has a higher fencing token."""

    @property
    def id(self) -> str:
        """ID of the run or batch."""

    @property
    def fence(self) -> int:
        """Fencing token."""


class RunLeaseStore(Store):
    """Leases of runs."""

    def __init__(self, database: Database, owner: str, lease_seconds: float, address: str = "") -> None:
        super().__init__(database, owner, lease_seconds, address)
        self._claims: set[asyncio.Future[Any]] = set()
        """Writes in flight that make runs this owner's."""
        now, among = database.dialect.now, database.dialect.among
        due = (
            f"{ACTIVE} AND (lease_until < {now}"
            " OR (owner = '' AND EXISTS (SELECT 1 FROM commands WHERE run_id = runs.id)))"
        )
        self._overdue_sql = f"SELECT 1 FROM runs WHERE {due} LIMIT 1"
        self._claim_sql = (
            f"WITH due AS MATERIALIZED (SELECT id FROM runs WHERE {due} AND NOT (id {among})"
            f" ORDER BY created LIMIT ?{database.dialect.skip_locked})"
            f" UPDATE runs SET owner = ?, owner_address = ?, fence = fence + 1, lease_until = {now} + ?"
            f" WHERE id IN (SELECT id FROM due) RETURNING {RUN_COLUMNS}"
        )
        self._renew_sql = f"UPDATE runs SET lease_until = {now} + ? WHERE id {among} AND owner = ? RETURNING id, fence"

    async def overdue(self) -> bool:
        """Whether there are runs to claim."""
        return bool(await self._database.read(self._overdue_sql))

    def claim(self, limit: int, held: Collection[str] = ()) -> "asyncio.Future[list[RunRow]]":
        """Claims runs whose lease has expired, and released runs with a command.

        Runs in `held` are left out: their leases are only renewed late.
        """
        values = (self._database.dialect.texts(held), limit, self._owner, self._address, self._lease_seconds)
        query = Query(self._claim_sql, values, alone=True)
        return self.track_claim(self._write("claim", single_query(query, lambda found: list(map(run_row, found)))))

    def renew(self, run_ids: Collection[str]) -> "asyncio.Future[dict[str, int]]":
        """Renews leases; returns the fencing tokens of the runs that this owner still has.

        Only runs that are executed may be renewed: others must expire to be claimed again.
        """
        values = (self._lease_seconds, self._database.dialect.texts(run_ids), self._owner)
        return self._write("renew", single_query(Query(self._renew_sql, values, alone=True), dict))

    async def release(self) -> None:
        """Releases all runs of this owner, for others to claim at once, including those whose claim is in flight."""
        if self._claims:
            await asyncio.wait(self._claims)
        await self._write("release", single_query(Query(_RELEASE, (self._owner,), alone=True), lambda _: None))

    def track_claim(self, write: "asyncio.Future[T]") -> "asyncio.Future[T]":
        """Tracks a write that makes runs this owner's, so that release() waits for it; returns it."""
        self._claims.add(write)
        write.add_done_callback(self._claims.discard)
        return write


@dataclass(frozen=True)
class Command:
    """A command for the owner of a run."""

    id: int
    run_id: str
    kind: str
    payload: bytes
    """Of an approval: the encoded ApproveRunRequest."""


class CommandStore(Store):
    """Commands to the owners of runs."""

    def cancel(self, run_id: str) -> "asyncio.Future[None]":
        """Stores the command to cancel a run, unless it is stored already."""
        query = Query(_INSERT_ONCE, (run_id, CANCEL, b"", time.time(), run_id, CANCEL), alone=True)
        return self._write("command", single_query(query, lambda _: None), run_id)

    def approve(self, run_id: str, request: bytes) -> "asyncio.Future[bool]":
        """Stores the approval of a parked run; returns whether this approval is stored.

        It is not if the run has an owner or has ended, where it would never be applied, or if it has another command.

        Args:
            run_id: ID of the run.
            request: the encoded ApproveRunRequest.
        """

        def operation() -> Steps[bool]:
            if not (yield Query(_LOCK_UNOWNED, (run_id,))):
                return False
            stored = yield Query(_OF_RUN, (run_id,))
            if not stored:
                yield Query(_INSERT, (run_id, APPROVE, request, time.time()))
            return not stored or tuple(stored[0]) == (APPROVE, request)

        return self._write("command", operation, run_id)

    async def has_command(self, run_id: str) -> bool:
        """Whether a command for a run is stored, applied or not."""
        return bool(await self._database.read(_OF_RUN, run_id))

    async def commands(self) -> list[Command]:
        """Commands for this owner's runs that have not ended, oldest first, including those already applied."""
        return [Command(*found) for found in await self._database.read(_OF_OWNER, self._owner)]
