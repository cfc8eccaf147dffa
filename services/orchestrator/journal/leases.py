"""Leases of runs: claims of runs without an owner, renewal and release.

Each claim raises the run's fencing token, so that an owner whose lease expired cannot write any more. Lease times are
those of the database's clock.
"""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

import asyncio
from collections.abc import Collection
from typing import Any, Protocol, TypeVar

from services.common.database import Database, Query
from services.orchestrator.journal.queries import Store, single_query
from services.orchestrator.journal.runs import ACTIVE, RUN_COLUMNS, RunRow, run_row

T = TypeVar("T")

_RELEASE = f"UPDATE runs SET lease_until = 0 WHERE owner = ? AND {ACTIVE}"


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
