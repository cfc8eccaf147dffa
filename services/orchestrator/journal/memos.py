"""Results of calls, stored for reuse by equal calls of the same tenant."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common.database import InsertInto
from services.orchestrator.journal.artifacts import digests, memo_artifact_rows
from services.orchestrator.journal.queries import Inserts, Store

DELETE_MEMOS = "DELETE FROM memos WHERE tenant = ? AND run_id = ?"
_MEMOS = InsertInto(
    "memos",
    {"tenant": "text", "digest": "text", "result": "bytea", "created": "float8", "run_id": "text"},
    "ON CONFLICT (tenant, digest) DO UPDATE SET"
    " result = excluded.result, created = excluded.created, run_id = excluded.run_id",
)
_MEMO = "SELECT result FROM memos WHERE tenant = ? AND digest = ?"


@dataclass(frozen=True)
class Memo:
    """A result stored for reuse."""

    tenant: str
    digest: str
    """Of the call."""
    result: TaskResult


class MemoStore(Store):
    """Stored results."""

    async def memo(self, tenant: str, digest: str) -> TaskResult | None:
        """The result stored for a digest."""
        for (result,) in await self._database.read(_MEMO, tenant, digest):
            return TaskResult.FromString(result)
        return None


def memo_rows(memos: Sequence[Memo]) -> Inserts:
    """Rows of stored results and their artifacts, sorted so that two transactions cannot deadlock."""
    if not memos:
        return []
    now, by_key = time.time(), {(memo.tenant, memo.digest): memo.result for memo in memos}
    ordered = sorted(by_key)
    rows = [(*key, by_key[key].SerializeToString(), now, by_key[key].made_by_run) for key in ordered]
    return [(_MEMOS, rows), *memo_artifact_rows({(*key, sha256) for key in ordered for sha256 in digests(by_key[key])})]
