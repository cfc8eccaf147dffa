"""The journal's tables, and what their rows are in Python."""

from dataclasses import dataclass

from protos.hugginggpt.v1.types_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    Caller,
    RunEvent,
    RunState,
)

SCHEMA = "runs"

MIGRATIONS = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        parent_id TEXT NOT NULL,
        state INTEGER NOT NULL,
        request TEXT NOT NULL,
        created REAL NOT NULL,
        deadline REAL NOT NULL,
        caller BLOB NOT NULL,
        seq INTEGER NOT NULL,
        owner TEXT NOT NULL,
        fence INTEGER NOT NULL,
        lease_until REAL NOT NULL
    );
    CREATE INDEX runs_by_tenant ON runs (tenant, created, id);
    CREATE INDEX runs_by_conversation ON runs (conversation_id);
    CREATE INDEX runs_alive ON runs (lease_until) WHERE state < 4;
    CREATE TABLE events (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        event BLOB NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) WITHOUT ROWID;
    CREATE TABLE commands (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        kind TEXT NOT NULL,
        created REAL NOT NULL
    );
    CREATE INDEX commands_by_run ON commands (run_id);
    CREATE TABLE idempotency (
        tenant TEXT NOT NULL,
        key TEXT NOT NULL,
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        digest TEXT NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (tenant, key)
    ) WITHOUT ROWID;
    CREATE INDEX idempotency_by_run ON idempotency (run_id);
    CREATE INDEX idempotency_by_age ON idempotency (created)
    """,
)

ENDED = frozenset({RUN_STATE_COMPLETED, RUN_STATE_INCOMPLETE, RUN_STATE_FAILED, RUN_STATE_CANCELLED})


@dataclass(frozen=True)
class NewRun:
    """A run to accept, with its first event."""

    id: str
    conversation_id: str
    parent_id: str
    request: str
    deadline: float
    caller: Caller
    idempotency_key: str
    digest: str
    first: RunEvent


@dataclass(frozen=True)
class Row:
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
    seq: int
    owner: str
    fence: int

    @property
    def ended(self) -> bool:
        return self.state in ENDED
