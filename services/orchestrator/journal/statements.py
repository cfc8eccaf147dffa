"""SQL of runs, for one database dialect."""

# ruff: noqa: S608  # composed of constants; values are always parameters

from collections.abc import Collection

from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.database import Dialect, InsertInto

FIELDS = (
    "id",
    "tenant",
    "conversation_id",
    "parent_id",
    "state",
    "request",
    "created",
    "deadline",
    "caller",
    "seq",
    "owner",
    "fence",
    "owner_address",
)
COLUMNS = ", ".join(FIELDS)
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
    "batch_idx": "bigint",
    "owner": "text",
    "owner_address": "text",
    "seq": "bigint",
    "fence": "bigint",
    "lease_until": "float8",
}
"""Columns of a new run."""
ALIVE = f"state < {RUN_STATE_COMPLETED}"

EVENTS = InsertInto("events", {"run_id": "text", "seq": "bigint", "event": "bytea", "referenced": "bigint"})
REFERENCES = InsertInto("artifact_references", {"run_id": "text", "sha256": "text"}, "ON CONFLICT DO NOTHING")
BATCH_RUNS = InsertInto(
    "batch_runs",
    {"batch_id": "text", "idx": "bigint", "run_id": "text", "state": "bigint", "ended": "float8", "outcome": "bytea"},
    "ON CONFLICT (batch_id, idx) DO UPDATE SET run_id = excluded.run_id, state = excluded.state,"
    " ended = excluded.ended, outcome = excluded.outcome",
)
MEMOS = InsertInto(
    "memos",
    {"tenant": "text", "digest": "text", "result": "bytea", "created": "float8", "run_id": "text"},
    "ON CONFLICT (tenant, digest) DO UPDATE SET"
    " result = excluded.result, created = excluded.created, run_id = excluded.run_id",
)
MEMO_REFERENCES = InsertInto(
    "memo_references", {"tenant": "text", "digest": "text", "sha256": "text"}, "ON CONFLICT DO NOTHING"
)

TAKE_KEY = (
    "INSERT INTO idempotency (tenant, key, run_id, digest, created) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (tenant, key) DO UPDATE SET"
    " run_id = excluded.run_id, digest = excluded.digest, created = excluded.created"
    " WHERE idempotency.created < ? RETURNING run_id"
)
"""Returns no row if the key belongs to another run; waits for a concurrent transaction that takes the key."""
KNOWN_KEY = "SELECT run_id, digest FROM idempotency WHERE tenant = ? AND key = ? AND created >= ?"
OWNED = "SELECT 1 FROM runs WHERE id = ? AND fence = ?"
EVENT = "SELECT event FROM events WHERE run_id = ? AND seq = ?"
PAGE = (
    "SELECT event FROM events WHERE run_id = ? AND seq > ? AND seq <="
    " (SELECT MAX(seq) FROM"
    "  (SELECT seq, SUM(size) OVER (ORDER BY seq) AS total FROM"
    "   (SELECT seq, LENGTH(event) AS size FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?) AS next)"
    "  AS summed WHERE total <= ? OR seq = ?)"
    " ORDER BY seq"
)
ROW = f"SELECT {COLUMNS} FROM runs WHERE id = ? AND tenant = ?"
ROW_AND_SNAPSHOT = f"SELECT {COLUMNS}, snapshot FROM runs WHERE id = ? AND tenant = ?"
COMMAND = "INSERT INTO commands (run_id, kind, payload, created) VALUES (?, ?, ?, ?)"
COMMAND_ONCE = (
    "INSERT INTO commands (run_id, kind, payload, created) SELECT ?, ?, ?, ?"
    " WHERE NOT EXISTS (SELECT 1 FROM commands WHERE run_id = ? AND kind = ?)"
)
UNOWNED = f"UPDATE runs SET fence = fence WHERE id = ? AND owner = '' AND {ALIVE} RETURNING id"
"""Changes nothing, but prevents owners from claiming the run until the transaction ends."""
RUN_COMMANDS = "SELECT kind, payload FROM commands WHERE run_id = ? ORDER BY id"
COMMANDS = (
    "SELECT id, run_id, kind, payload FROM commands WHERE run_id IN"
    f" (SELECT id FROM runs WHERE {ALIVE} AND owner = ?) ORDER BY id"
)
ENDED = (
    "SELECT runs.id, runs.caller, runs.state, runs.ended, events.event FROM runs"
    " JOIN events ON events.run_id = runs.id AND events.seq = runs.seq"
    " WHERE runs.ended > 0 AND runs.ended >= ? AND (runs.ended, runs.id) > (?, ?)"
    " ORDER BY runs.ended, runs.id LIMIT ?"
)
MEMO = "SELECT result FROM memos WHERE tenant = ? AND digest = ?"
CONVERSATION = (
    "WITH RECURSIVE chain (depth, id, parent_id) AS ("
    " SELECT 1, id, parent_id FROM runs WHERE id = ? AND tenant = ?"
    " UNION ALL"
    " SELECT depth + 1, runs.id, runs.parent_id FROM chain JOIN runs ON runs.id = chain.parent_id"
    " WHERE runs.tenant = ? AND depth < ?),"
    " sized AS (SELECT depth, chain.id, COUNT(*) OVER () AS remaining,"
    " SUM(COALESCE(LENGTH(snapshot), 0)) OVER (ORDER BY depth) - COALESCE(LENGTH(snapshot), 0) AS size_before"
    " FROM chain JOIN runs ON runs.id = chain.id WHERE depth > ?)"
    f" SELECT depth, remaining, {', '.join(f'runs.{field}' for field in FIELDS)}, snapshot FROM sized"
    " JOIN runs ON runs.id = sized.id WHERE size_before < ? ORDER BY depth"
)
"""A run and the earlier runs of its conversation, latest first, one page at a time."""
STATE = "SELECT state, batch_id, batch_idx FROM runs WHERE id = ? AND tenant = ?"
POSITION = (
    "SELECT seq, COALESCE((SELECT MAX(seq) FROM events WHERE run_id = runs.id), 0), batch_id, batch_idx"
    " FROM runs WHERE id = ?"
)
"""The last event number by a run's row and by its events, which differ in a corrupted journal; and its batch item."""
DELETE = "DELETE FROM runs WHERE id = ?"
DELETE_MEMOS = "DELETE FROM memos WHERE tenant = ? AND run_id = ?"
CLEAR_OUTCOME = "UPDATE batch_runs SET outcome = ? WHERE batch_id = ? AND idx = ? AND run_id = ?"


class Statements:
    """Statements that differ between database dialects.

    Statements that set a lease take its length in seconds as the value of NOW + ?.
    """

    def __init__(self, dialect: Dialect) -> None:
        now = dialect.now
        self.texts = dialect.texts
        self.runs = InsertInto("runs", _NEW, computed={"lease_until": f"{now} + {{}}"})
        self.accept = f"{self.runs.one} RETURNING id"
        self.append = append(f"lease_until = {now} + ?")
        self.fail = (
            f"UPDATE runs SET seq = ?, state = ?, ended = {now}, lease_until = {now} + ?"
            f" WHERE id = ? AND fence = ? AND {ALIVE} RETURNING id"
        )
        self.end = append(f"lease_until = {now} + ?", "snapshot = ?", f"ended = {now}")
        due = (
            f"{ALIVE} AND (lease_until < {now}"
            " OR (owner = '' AND EXISTS (SELECT 1 FROM commands WHERE run_id = runs.id)))"
        )
        self.overdue = f"SELECT 1 FROM runs WHERE {due} LIMIT 1"
        self.claim = (
            f"WITH due AS MATERIALIZED (SELECT id FROM runs WHERE {due} AND NOT (id {dialect.among})"
            f" ORDER BY created LIMIT ?{dialect.skip_locked})"
            f" UPDATE runs SET owner = ?, owner_address = ?, fence = fence + 1, lease_until = {now} + ?"
            f" WHERE id IN (SELECT id FROM due) RETURNING {COLUMNS}"
        )
        self.renew = (
            f"UPDATE runs SET lease_until = {now} + ? WHERE id {dialect.among} AND owner = ? RETURNING id, fence"
        )
        self.release = f"UPDATE runs SET lease_until = 0 WHERE owner = ? AND {ALIVE}"


def append(*changes: str) -> str:
    """Adds events to the number of a run that the writer still owns, and makes further changes."""
    others = "".join(f", {change}" for change in changes)
    return f"UPDATE runs SET seq = seq + ?, state = ?{others} WHERE id = ? AND fence = ? AND seq = ? RETURNING seq"


def rows(before: bool, states: Collection[int], conversation: bool, batch: bool, first_turns: bool) -> str:
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
    return f"SELECT {COLUMNS} FROM runs WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT ?"
