"""Runs as rows: new ones, and reading one, a list, a conversation, or those that have ended."""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, BatchPosition, Run, RunState
from services.common.database import Dialect, InsertInto
from services.common.errors import CorruptData, NotFound
from services.orchestrator.journal.store import PAGE_BYTES, Store, decode

ACTIVE = f"state < {RUN_STATE_COMPLETED}"
"""Condition that a run has not ended."""

_FIELDS = (
    *("id", "tenant", "conversation_id", "parent_id", "state", "request", "created", "deadline", "caller"),
    *("last_sequence", "owner", "fence", "owner_address"),
)
RUN_COLUMNS = ", ".join(_FIELDS)
_NEW = {
    "id": "text",
    "tenant": "text",
    "conversation_id": "text",
    "parent_id": "text",
    "state": "bigint",
    "request": "text",
    "created": "float8",
    "deadline": "float8",
    "caller": "bytea",
    "batch_id": "text",
    "batch_index": "bigint",
    "owner": "text",
    "owner_address": "text",
    "last_sequence": "bigint",
    "fence": "bigint",
    "lease_until": "float8",
}
"""Columns of a new run."""

_ROW = f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ? AND tenant = ?"
_ROW_AND_SNAPSHOT = f"SELECT {RUN_COLUMNS}, snapshot FROM runs WHERE id = ? AND tenant = ?"
_ENDED = (
    "SELECT runs.id, runs.caller, runs.state, runs.ended, events.event FROM runs"
    " JOIN events ON events.run_id = runs.id AND events.sequence = runs.last_sequence"
    " WHERE runs.ended > 0 AND runs.ended >= ? AND (runs.ended, runs.id) > (?, ?)"
    " ORDER BY runs.ended, runs.id LIMIT ?"
)
_CONVERSATION = (
    "WITH RECURSIVE chain (depth, id, parent_id) AS ("
    " SELECT 1, id, parent_id FROM runs WHERE id = ? AND tenant = ?"
    " UNION ALL"
    " SELECT depth + 1, runs.id, runs.parent_id FROM chain JOIN runs ON runs.id = chain.parent_id"
    " WHERE runs.tenant = ? AND depth < ?),"
    " measured AS (SELECT depth, chain.id, COUNT(*) OVER () AS remaining,"
    " SUM(COALESCE(LENGTH(snapshot), 0)) OVER (ORDER BY depth) - COALESCE(LENGTH(snapshot), 0) AS size_before"
    " FROM chain JOIN runs ON runs.id = chain.id WHERE depth > ?)"
    f" SELECT depth, remaining, {', '.join(f'runs.{name}' for name in _FIELDS)}, snapshot FROM measured"
    " JOIN runs ON runs.id = measured.id WHERE size_before < ? ORDER BY depth"
)
"""A run and the earlier runs of its conversation, latest first, one page at a time."""


def _list(before: bool, states: Sequence[int], conversation: bool, batch: bool, first_turns: bool) -> str:
    """A page of a tenant's runs, newest first; runs of batch items only for a batch."""
    where = ["tenant = ?", "created > ?", "batch_id = ?" if batch else "batch_id = ''"]
    if first_turns:
        where.append("parent_id = ''")
    if before:
        where.append("(created, id) < (?, ?)")
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
    if conversation:
        where.append("conversation_id = ?")
    return f"SELECT {RUN_COLUMNS} FROM runs WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT ?"


@dataclass(frozen=True)
class NewRun:
    """A run to store, with its first event."""

    id: str
    conversation_id: str
    parent_id: str
    request: str
    deadline: float
    caller: Caller
    idempotency_key: str
    digest: str
    first: RunEvent
    batch: BatchPosition = field(default_factory=BatchPosition)


@dataclass(frozen=True)
class RunRow:
    """A run without its events."""

    id: str
    tenant: str
    conversation_id: str
    parent_id: str
    state: "RunState.ValueType"
    request: str
    created: float
    deadline: float
    caller: Caller
    last_sequence: int
    owner: str
    """Empty while no orchestrator needs to execute it."""
    fence: int
    owner_address: str
    is_readable: bool = True
    """False if its caller cannot be decoded: then it must not be continued."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_RUN_STATES


@dataclass(frozen=True)
class StoredRun:
    """A run with the last stored snapshot of its state."""

    row: RunRow
    snapshot: Run | None
    """Older than the row if its last_sequence is smaller; None if none is stored or it cannot be decoded."""


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended, with its last event."""

    id: str
    caller: Caller
    state: "RunState.ValueType"
    ended: float
    """Seconds since the epoch."""
    last: RunEvent


class RunStore(Store):
    """Reads the rows of runs."""

    async def row(self, run_id: str, tenant: str) -> RunRow:
        """A run of the tenant.

        Raises:
            NotFound: RUN.
        """
        for values in await self._database.read(_ROW, run_id, tenant):
            return run_row(values)
        raise unknown_run(run_id)

    async def stored_run(self, run_id: str, tenant: str) -> StoredRun:
        """A run of the tenant with its snapshot.

        Raises:
            NotFound: RUN.
        """
        for values in await self._database.read(_ROW_AND_SNAPSHOT, run_id, tenant):
            return _stored_run(values)
        raise unknown_run(run_id)

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
    ) -> list[RunRow]:
        """Runs of the tenant, newest first, created before a (created, ID); runs of batch items only with batch_id."""
        sql = _list(before is not None, states, bool(conversation_id), bool(batch_id), first_turns)
        batch, conversation = [batch_id] if batch_id else [], [conversation_id] if conversation_id else []
        values = (tenant, created_after, *batch, *(before or ()), *states, *conversation, limit)
        return [run_row(found) for found in await self._database.read(sql, *values)]

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
            found = await self._database.read(_CONVERSATION, *values)
            runs += [_stored_run(row) for _, _, *row in found]
            depth, remaining = (found[-1][0], found[0][1] - len(found)) if found else (depth, 0)
        return runs

    async def ended(self, since: float, after: tuple[float, str], limit: int) -> list[EndedRun]:
        """Runs of all tenants that ended at or after `since`, by the database's clock, after an (ended, ID)."""
        return [
            EndedRun(run_id, decode(Caller, caller) or Caller(), state, ended, RunEvent.FromString(last))
            for run_id, caller, state, ended, last in await self._database.read(_ENDED, since, *after, limit)
        ]


def insert_into_runs(dialect: Dialect) -> InsertInto:
    """The insertion of new runs; the value of the last column is the length of the lease in seconds."""
    return InsertInto("runs", _NEW, computed={"lease_until": f"{dialect.now} + {{}}"})


def run_row(values: Sequence[Any]) -> RunRow:
    """Converts a row with the columns RUN_COLUMNS."""
    fields = dict(zip(_FIELDS, values, strict=True))
    caller = decode(Caller, fields["caller"])
    known = caller or Caller(tenant=fields["tenant"])  # an unspecified data policy counts as the strictest
    return RunRow(**{**fields, "caller": known}, is_readable=caller is not None)


def _stored_run(values: Sequence[Any]) -> StoredRun:
    """Converts a row with the columns RUN_COLUMNS and a snapshot."""
    *fields, snapshot = values
    return StoredRun(run_row(fields), decode(Run, snapshot) if snapshot else None)


def unknown_run(run_id: str) -> NotFound:
    """The error for a run that does not exist, or belongs to another tenant."""
    return NotFound(f"there is no run {run_id}", reason="RUN", remedy="check the ID; `GET /v1/runs` lists them")


def unreadable(run_id: str) -> CorruptData:
    """The error for a run whose stored events cannot be decoded or are inconsistent."""
    return CorruptData(
        f"the stored events of run {run_id} cannot be read",
        remedy="start it again; the orchestrator's log has the error",
    )
