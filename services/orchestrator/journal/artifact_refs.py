"""Artifacts that others refer to than runs and memos: kept for as long as somebody names them."""

from asyncio import Future
from collections.abc import Collection

from services.common.database import Database, InsertInto, Query, Steps

HOLDS = InsertInto("holds", {"tenant": "text", "holder": "text", "sha256": "text"}, "ON CONFLICT DO NOTHING")
LET_GO = "DELETE FROM holds WHERE tenant = ? AND holder = ?"
_ASKED = "SELECT 1"


class Holds:
    """What is held, in the journal's database: retention looks there before it collects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def hold(self, tenant: str, holder: str, sha256s: Collection[str]) -> "Future[None]":
        """The holder refers to these from now on, and no longer to what it named before."""
        rows = [(tenant, holder, sha256) for sha256 in sorted(set(sha256s))]

        def operation() -> Steps[None]:
            yield Query(LET_GO, (tenant, holder))
            if rows:
                yield Query(_ASKED, (), [(HOLDS, rows)])

        return self._database.write(operation)
