"""Numbered events of runs, and the results that are stored with them for reuse by equal calls of the same tenant.

The owner of a run appends them under its fencing token.
"""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import Run, RunState, TaskResult
from services.common.database import ConstraintViolation, Database, InsertInto, Query, Steps
from services.orchestrator.journal.artifacts import digests, may_refer, memo_artifact_rows, run_artifact_rows
from services.orchestrator.journal.runs import RunRow, unreadable
from services.orchestrator.journal.store import PAGE_BYTES, Inserts, LeaseLost, Store, decode

SNAPSHOT_BYTES = 8 * 1024 * 1024
"""Largest snapshot that is stored: reading a larger one would take too much memory at once."""

_EVENTS = InsertInto("events", {"run_id": "text", "sequence": "bigint", "event": "bytea"})
_OWNED = "SELECT 1 FROM runs WHERE id = ? AND fence = ?"
_EVENT = "SELECT event FROM events WHERE run_id = ? AND sequence = ?"
_PAGE = (
    "SELECT event FROM events WHERE run_id = ? AND sequence > ? AND sequence <="
    " (SELECT MAX(sequence) FROM"
    "  (SELECT sequence, SUM(size) OVER (ORDER BY sequence) AS total_size FROM"
    "   (SELECT sequence, LENGTH(event) AS size FROM events WHERE run_id = ? AND sequence > ?"
    "    ORDER BY sequence LIMIT ?) AS next)"
    "  AS measured WHERE total_size <= ? OR sequence = ?)"
    " ORDER BY sequence"
)
DELETE_MEMOS = "DELETE FROM memos WHERE tenant = ? AND run_id = ?"
_MEMOS = InsertInto(
    "memos",
    {"tenant": "text", "digest": "text", "result": "bytea", "created": "float8", "run_id": "text"},
    "ON CONFLICT (tenant, digest) DO UPDATE SET"
    " result = excluded.result, created = excluded.created, run_id = excluded.run_id",
)
_SELECT_MEMOS = "SELECT digest, result FROM memos WHERE tenant = ? AND digest {among}"


def _append(*changes: str) -> str:
    """Statement that increases the last event number of a run that the writer still owns, with further changes."""
    others = "".join(f", {change}" for change in changes)
    return (
        f"UPDATE runs SET last_sequence = last_sequence + ?, state = ?{others}"
        " WHERE id = ? AND fence = ? AND last_sequence = ? RETURNING last_sequence"
    )


@dataclass(frozen=True)
class Memo:
    """A result stored for reuse."""

    tenant: str
    digest: str
    """Of the call."""
    result: TaskResult


class EventStore(Store):
    """Events of runs."""

    def __init__(self, database: Database, owner: str, lease_seconds: float, address: str = "") -> None:
        super().__init__(database, owner, lease_seconds, address)
        now = database.dialect.now
        self._renew_lease = f"lease_until = {now} + ?"
        self._append_sql = _append(self._renew_lease)
        self._append_last_sql = _append(self._renew_lease, "snapshot = ?", f"ended = {now}")

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
            parked_until: releases the run, to be claimed upon a command or at this time, in seconds since the epoch.
            deadline: new deadline of the run, in seconds since the epoch.
            caller: new caller of the run.

        Raises:
            LeaseLost: another orchestrator owns the run.
            ConstraintViolation: other events have these numbers, or earlier events are missing.
        """
        first, last = events[0].sequence, events[-1].sequence
        sql, changes = self._append_changes(state, snapshot, parked_until, deadline, caller)
        values = (len(events), state, *changes, run_id, fence, first - 1)
        inserts = [*event_rows(run_id, events), *memo_rows(memos), *more]

        def operation() -> "Steps[None]":  # not evaluated at each call
            if (yield Query(sql, values, inserts, alone=True)):
                return
            stored = yield Query(_EVENT, (run_id, last))
            if stored and decode(RunEvent, stored[0][0]) == events[-1]:
                return
            if (yield Query(_OWNED, (run_id, fence))):
                raise ConstraintViolation(f"the stored events of run {run_id} do not end at number {first - 1}")
            raise LeaseLost(f"another orchestrator owns run {run_id}")

        return self._write("append", operation, run_id)

    def _append_changes(
        self,
        state: "RunState.ValueType",
        snapshot: Run | None,
        parked_until: float | None,
        deadline: float | None,
        caller: Caller | None,
    ) -> tuple[str, list[Any]]:
        """The statement of an append, and the values of its further changes."""
        if state in ENDED_RUN_STATES:
            return self._append_last_sql, [self._lease_seconds, _encoded_snapshot(snapshot)]
        if parked_until is None and deadline is None and caller is None:
            return self._append_sql, [self._lease_seconds]
        changes: dict[str, Any] = {self._renew_lease: self._lease_seconds}
        if parked_until is not None:
            changes = {"owner = '', owner_address = '', fence = fence + 1, lease_until = ?": parked_until}
            changes["snapshot = ?"] = _encoded_snapshot(snapshot)
        if deadline is not None:
            changes["deadline = ?"] = deadline
        if caller is not None:
            changes["caller = ?"] = caller.SerializeToString()
        return _append(*changes), list(changes.values())

    async def events(self, run_id: str, after: int, limit: int = 500) -> list[RunEvent]:
        """Events numbered above `after`, in order; fewer at a time if they are large.

        Raises:
            CorruptData: one of them cannot be decoded.
        """
        found = await self._database.read(_PAGE, run_id, after, run_id, after, limit, PAGE_BYTES, after + 1)
        try:
            return [RunEvent.FromString(event) for (event,) in found]
        except DecodeError as error:
            raise unreadable(run_id) from error

    async def last_event(self, row: RunRow) -> RunEvent | None:
        """The last event of a run; None if it cannot be decoded."""
        for (event,) in await self._database.read(_EVENT, row.id, row.last_sequence):
            return decode(RunEvent, event)
        return None


def event_rows(run_id: str, events: Sequence[RunEvent]) -> Inserts:
    """Rows of events and of the artifacts they refer to."""
    encoded = [event.SerializeToString() for event in events]
    rows = [(run_id, event.sequence, content) for event, content in zip(events, encoded, strict=True)]
    referring = [event for event, content in zip(events, encoded, strict=True) if may_refer(content)]
    return [(_EVENTS, rows), *run_artifact_rows(run_id, {each for event in referring for each in digests(event)})]


def _encoded_snapshot(run: Run | None) -> bytes | None:
    """The snapshot to store; None if there is none or it is too large, so that readers fold the events instead."""
    encoded = run.SerializeToString() if run else b""
    return encoded if 0 < len(encoded) <= SNAPSHOT_BYTES else None


class MemoStore(Store):
    """Stored results."""

    def __init__(self, database: Database, owner: str, lease_seconds: float, address: str = "") -> None:
        super().__init__(database, owner, lease_seconds, address)
        self._memos_sql = _SELECT_MEMOS.format(among=database.dialect.among)
        self._lookups: dict[str, _Lookup] = {}
        """Those of this round of the event loop, by tenant."""

    async def memo(self, tenant: str, digest: str) -> TaskResult | None:
        """The result stored for a digest. Lookups of one round of the event loop, as of batch items, are one query."""
        lookup = self._lookups.get(tenant) or self._start_lookup(tenant)
        lookup.digests.add(digest)
        result = (await asyncio.shield(lookup.found)).get(digest)
        return TaskResult.FromString(result) if result is not None else None

    def _start_lookup(self, tenant: str) -> "_Lookup":
        digests = set[str]()
        lookup = self._lookups[tenant] = _Lookup(digests, asyncio.ensure_future(self._read_memos(tenant, digests)))
        return lookup

    async def _read_memos(self, tenant: str, digests: Collection[str]) -> Mapping[str, bytes]:
        await asyncio.sleep(0)
        del self._lookups[tenant]
        found = await self._database.read(self._memos_sql, tenant, self._database.dialect.texts(digests))
        return {row[0]: row[1] for row in found}


class _Lookup(NamedTuple):
    """One query for stored results."""

    digests: set[str]
    found: "asyncio.Future[Mapping[str, bytes]]"
    """Results by digest."""


def memo_rows(memos: Sequence[Memo]) -> Inserts:
    """Rows of stored results and their artifacts, sorted so that two transactions cannot deadlock."""
    if not memos:
        return []
    now, by_key = time.time(), {(memo.tenant, memo.digest): memo.result for memo in memos}
    ordered = sorted(by_key)
    rows = [(*key, by_key[key].SerializeToString(), now, by_key[key].made_by_run) for key in ordered]
    return [(_MEMOS, rows), *memo_artifact_rows({(*key, sha256) for key in ordered for sha256 in digests(by_key[key])})]
