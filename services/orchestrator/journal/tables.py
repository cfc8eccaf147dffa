"""Tables of the journal, and their rows as Python objects."""

from dataclasses import dataclass, field

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import (
    BatchPosition,
    Run,
    RunState,
    TaskResult,
)

SCHEMA = "runs"

IDEMPOTENCY_SECONDS = 24 * 3600.0
"""How long an idempotency key is valid."""

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
    # The index on lease_until is dropped, because every event changes it. Events have referenced = 1 once the artifacts
    # they refer to are in artifact_references, which earlier releases did not write.
    """
    ALTER TABLE runs ADD COLUMN owner_address TEXT NOT NULL DEFAULT '';
    DROP INDEX runs_alive;
    CREATE INDEX runs_alive_by_age ON runs (created) WHERE state < 4;
    CREATE INDEX runs_by_age ON runs (created);
    ALTER TABLE commands ADD COLUMN payload BLOB;
    ALTER TABLE events ADD COLUMN referenced INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX events_unreferenced ON events (run_id, seq) WHERE referenced = 0;
    CREATE TABLE artifact_references (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (run_id, sha256)
    ) WITHOUT ROWID;
    CREATE INDEX artifact_references_by_digest ON artifact_references (sha256);
    CREATE TABLE memos (
        tenant TEXT NOT NULL,
        digest TEXT NOT NULL,
        result BLOB NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (tenant, digest)
    );
    CREATE INDEX memos_by_age ON memos (created);
    CREATE TABLE memo_references (
        tenant TEXT NOT NULL,
        digest TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (tenant, digest, sha256),
        FOREIGN KEY (tenant, digest) REFERENCES memos ON DELETE CASCADE
    ) WITHOUT ROWID;
    CREATE INDEX memo_references_by_digest ON memo_references (sha256);
    CREATE TABLE duties (name TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL)
    """,
    # Runs that an earlier release ended have 0 as their end, and are not listed by it.
    """
    ALTER TABLE runs ADD COLUMN ended REAL NOT NULL DEFAULT 0;
    CREATE INDEX runs_by_end ON runs (ended, id) WHERE ended > 0;
    CREATE TABLE holds (
        tenant TEXT NOT NULL,
        holder TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (tenant, holder, sha256)
    ) WITHOUT ROWID;
    CREATE INDEX holds_by_digest ON holds (sha256)
    """,
    # Results that an earlier release stored have no run, and stay when the run that made them is deleted.
    """
    ALTER TABLE memos ADD COLUMN run_id TEXT NOT NULL DEFAULT '';
    CREATE INDEX memos_by_run ON memos (run_id)
    """,
    # Deleted pipelines stay as rows without content, so that no version number is used twice. batch_runs has a row for
    # each item that has started or failed to; runs_alone excludes runs of batch items from the list of runs.
    """
    CREATE TABLE pipelines (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        created REAL NOT NULL,
        pipeline BLOB NOT NULL,
        PRIMARY KEY (tenant, name, version)
    );
    CREATE TABLE batches (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        idempotency_key TEXT NOT NULL,
        digest TEXT NOT NULL,
        state INTEGER NOT NULL,
        created REAL NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        total INTEGER NOT NULL DEFAULT 0,
        caller BLOB NOT NULL,
        spec BLOB NOT NULL,
        pipeline BLOB NOT NULL,
        round INTEGER NOT NULL DEFAULT 1,
        failed_only INTEGER NOT NULL DEFAULT 0,
        wish TEXT NOT NULL DEFAULT '',
        waiting_for TEXT NOT NULL DEFAULT '',
        failure BLOB NOT NULL,
        owner TEXT NOT NULL DEFAULT '',
        fence INTEGER NOT NULL DEFAULT 0,
        lease_until REAL NOT NULL DEFAULT 0
    );
    CREATE INDEX batches_by_tenant ON batches (tenant, created, id);
    CREATE INDEX batches_open ON batches (created) WHERE state < 4;
    CREATE UNIQUE INDEX batches_by_key ON batches (tenant, idempotency_key) WHERE idempotency_key != '';
    CREATE TABLE batch_items (
        batch_id TEXT NOT NULL REFERENCES batches ON DELETE CASCADE,
        idx INTEGER NOT NULL,
        name TEXT NOT NULL,
        inputs BLOB NOT NULL,
        PRIMARY KEY (batch_id, idx)
    ) WITHOUT ROWID;
    CREATE TABLE batch_runs (
        batch_id TEXT NOT NULL REFERENCES batches ON DELETE CASCADE,
        idx INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        state INTEGER NOT NULL,
        ended REAL NOT NULL,
        outcome BLOB NOT NULL,
        PRIMARY KEY (batch_id, idx)
    ) WITHOUT ROWID;
    CREATE INDEX batch_runs_by_state ON batch_runs (batch_id, state, ended);
    ALTER TABLE runs ADD COLUMN batch_id TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN batch_idx INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX runs_alone ON runs (tenant, created, id) WHERE batch_id = '';
    CREATE INDEX runs_of_batches ON runs (batch_id) WHERE batch_id != ''
    """,
    "CREATE INDEX batches_by_end ON batches (ended, id) WHERE ended > 0",
    # Covers all columns by which unowned batches are found: their rows may have megabytes before the lease.
    "CREATE INDEX batches_due ON batches (tenant, created, id, state, lease_until) WHERE state < 4",
    "ALTER TABLE batches ADD COLUMN taken_up REAL NOT NULL DEFAULT 0",
    # One statement takes a key and then inserts its run, which is checked at the end: the constraint must be deferred,
    # and older keys are copied. Tables are locked in the order of inserts, keys first, to avoid a deadlock.
    """
    ALTER TABLE idempotency RENAME TO idempotency_before;
    DROP INDEX idempotency_by_run;
    CREATE TABLE idempotency (
        tenant TEXT NOT NULL,
        key TEXT NOT NULL,
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
        digest TEXT NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (tenant, key)
    ) WITHOUT ROWID;
    CREATE INDEX idempotency_by_run ON idempotency (run_id);
    INSERT INTO idempotency SELECT tenant, key, run_id, digest, created FROM idempotency_before;
    DROP TABLE idempotency_before
    """,
    # The state of a run that has ended or waits for approval, which readers need not fold from its events.
    "ALTER TABLE runs ADD COLUMN snapshot BLOB",
)
"""In SQLite's dialect; services.common.database.migrations states what a script may contain."""


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
    """Empty while no orchestrator needs to execute it."""
    fence: int
    owner_address: str
    is_readable: bool = True
    """False if its caller cannot be decoded: then it must not be continued."""

    @property
    def ended(self) -> bool:
        return self.state in ENDED_RUN_STATES


@dataclass(frozen=True)
class StoredRun:
    """A run with the last stored snapshot of its state."""

    row: Row
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


@dataclass(frozen=True)
class Command:
    """A command for the owner of a run."""

    id: int
    run_id: str
    kind: str
    payload: bytes


@dataclass(frozen=True)
class Memo:
    """A result stored for reuse by equal calls of the same tenant."""

    tenant: str
    digest: str
    result: TaskResult
