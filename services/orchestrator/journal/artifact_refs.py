"""Holds: references to artifacts by others than runs and stored results, such as files, pipelines and batches."""

from asyncio import Future
from collections.abc import Collection

from services.common.database import Database, InsertInto, Query, Steps

HOLDS = InsertInto("holds", {"tenant": "text", "holder": "text", "sha256": "text"}, "ON CONFLICT DO NOTHING")
RELEASE_HOLDS = "DELETE FROM holds WHERE tenant = ? AND holder = ?"
_NOTHING = "SELECT 1"


class ArtifactHolds:
    """Holds in the journal's database; retention deletes no artifact that is held."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def hold(self, tenant: str, holder: str, sha256s: Collection[str]) -> "Future[None]":
        """Replaces the artifacts that a holder refers to."""
        rows = [(tenant, holder, sha256) for sha256 in sorted(set(sha256s))]

        def operation() -> Steps[None]:
            yield Query(RELEASE_HOLDS, (tenant, holder))
            if rows:
                yield Query(_NOTHING, (), [(HOLDS, rows)])

        return self._database.write(operation)
