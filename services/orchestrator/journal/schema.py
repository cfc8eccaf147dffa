"""Tables of the journal."""

SCHEMA = "runs"

# lease_until is in no index, because every event changes it.
_RUNS = """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        parent_id TEXT NOT NULL,
        batch_id TEXT NOT NULL,
        batch_index INTEGER NOT NULL,
        state INTEGER NOT NULL,
        request TEXT NOT NULL,
        created REAL NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        deadline REAL NOT NULL,
        caller BLOB NOT NULL,
        last_sequence INTEGER NOT NULL,
        owner TEXT NOT NULL,
        owner_address TEXT NOT NULL,
        fence INTEGER NOT NULL,
        lease_until REAL NOT NULL,
        snapshot BLOB
    );
    CREATE INDEX runs_by_tenant ON runs (tenant, created, id);
    CREATE INDEX runs_without_batch ON runs (tenant, created, id) WHERE batch_id = '';
    CREATE INDEX runs_by_batch ON runs (batch_id) WHERE batch_id != '';
    CREATE INDEX runs_by_conversation ON runs (conversation_id);
    CREATE INDEX runs_by_age ON runs (created);
    CREATE INDEX active_runs_by_age ON runs (created) WHERE state < 4;
    CREATE INDEX runs_by_end ON runs (ended, id) WHERE ended > 0;
    CREATE TABLE events (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        sequence INTEGER NOT NULL,
        event BLOB NOT NULL,
        PRIMARY KEY (run_id, sequence)
    ) WITHOUT ROWID;
    CREATE TABLE commands (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        kind TEXT NOT NULL,
        payload BLOB NOT NULL,
        created REAL NOT NULL
    );
    CREATE INDEX commands_by_run ON commands (run_id)
"""

# The reference to the run is checked at the commit: one statement takes a key and then inserts its run.
_IDEMPOTENCY = """
    CREATE TABLE idempotency_keys (
        tenant TEXT NOT NULL,
        key TEXT NOT NULL,
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
        digest TEXT NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (tenant, key)
    ) WITHOUT ROWID;
    CREATE INDEX idempotency_keys_by_run ON idempotency_keys (run_id);
    CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created)
"""

_ARTIFACTS = """
    CREATE TABLE run_artifacts (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (run_id, sha256)
    ) WITHOUT ROWID;
    CREATE INDEX run_artifacts_by_digest ON run_artifacts (sha256);
    CREATE TABLE held_artifacts (
        tenant TEXT NOT NULL,
        holder TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (tenant, holder, sha256)
    ) WITHOUT ROWID;
    CREATE INDEX held_artifacts_by_digest ON held_artifacts (sha256);
    CREATE TABLE memos (
        tenant TEXT NOT NULL,
        digest TEXT NOT NULL,
        run_id TEXT NOT NULL,
        result BLOB NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (tenant, digest)
    );
    CREATE INDEX memos_by_run ON memos (run_id);
    CREATE INDEX memos_by_age ON memos (created);
    CREATE TABLE memo_artifacts (
        tenant TEXT NOT NULL,
        digest TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (tenant, digest, sha256),
        FOREIGN KEY (tenant, digest) REFERENCES memos ON DELETE CASCADE
    ) WITHOUT ROWID;
    CREATE INDEX memo_artifacts_by_digest ON memo_artifacts (sha256)
"""

# Deleted pipelines remain as rows without content, so that no version number is used twice.
_PIPELINES = """
    CREATE TABLE pipelines (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        created REAL NOT NULL,
        pipeline BLOB NOT NULL,
        PRIMARY KEY (tenant, name, version)
    )
"""

# The index active_batches has all columns by which unowned batches are found, because a batch may have megabytes.
# batch_runs has a row for each item that has started or that cannot run.
_BATCHES = """
    CREATE TABLE batches (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        idempotency_key TEXT NOT NULL DEFAULT '',
        digest TEXT NOT NULL DEFAULT '',
        state INTEGER NOT NULL,
        created REAL NOT NULL,
        claimed REAL NOT NULL DEFAULT 0,
        ended REAL NOT NULL DEFAULT 0,
        total INTEGER NOT NULL DEFAULT 0,
        round INTEGER NOT NULL DEFAULT 1,
        failed_only INTEGER NOT NULL DEFAULT 0,
        is_cancelled INTEGER NOT NULL DEFAULT 0,
        waiting_for TEXT NOT NULL DEFAULT '',
        owner TEXT NOT NULL DEFAULT '',
        fence INTEGER NOT NULL DEFAULT 0,
        lease_until REAL NOT NULL DEFAULT 0,
        caller BLOB NOT NULL,
        failure BLOB NOT NULL,
        spec BLOB NOT NULL,
        pipeline BLOB NOT NULL
    );
    CREATE INDEX batches_by_tenant ON batches (tenant, created, id);
    CREATE INDEX active_batches ON batches (tenant, created, id, state, lease_until) WHERE state < 4;
    CREATE INDEX batches_by_end ON batches (ended, id) WHERE ended > 0;
    CREATE UNIQUE INDEX batches_by_key ON batches (tenant, idempotency_key) WHERE idempotency_key != '';
    CREATE TABLE batch_items (
        batch_id TEXT NOT NULL REFERENCES batches ON DELETE CASCADE,
        item_index INTEGER NOT NULL,
        name TEXT NOT NULL,
        inputs BLOB NOT NULL,
        PRIMARY KEY (batch_id, item_index)
    ) WITHOUT ROWID;
    CREATE TABLE batch_runs (
        batch_id TEXT NOT NULL REFERENCES batches ON DELETE CASCADE,
        item_index INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        state INTEGER NOT NULL,
        ended REAL NOT NULL,
        outcome BLOB NOT NULL,
        PRIMARY KEY (batch_id, item_index)
    ) WITHOUT ROWID;
    CREATE INDEX batch_runs_by_state ON batch_runs (batch_id, state, ended)
"""

_RETENTION = """
    CREATE TABLE retention_lease (name TEXT PRIMARY KEY, owner TEXT NOT NULL, lease_until REAL NOT NULL);
    CREATE TABLE journal_name (id INTEGER PRIMARY KEY, name TEXT NOT NULL)
"""

MIGRATIONS = (f"{_RUNS};{_IDEMPOTENCY};{_ARTIFACTS};{_PIPELINES};{_BATCHES};{_RETENTION}",)
"""In SQLite's dialect; services.common.database.migrations states what a script may contain."""
