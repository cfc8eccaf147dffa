"""Tables of API keys, secrets, audit entries and usage counters."""

ACCESS = """
    CREATE TABLE api_keys (
        id TEXT PRIMARY KEY,
        digest BLOB NOT NULL,
        name TEXT NOT NULL,
        tenant TEXT NOT NULL,
        policy INTEGER NOT NULL,
        admin INTEGER NOT NULL,
        limits TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL,
        revoked REAL
    );
    CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        tenant TEXT NOT NULL,
        actor TEXT NOT NULL,
        request_id TEXT NOT NULL,
        action TEXT NOT NULL,
        subject TEXT NOT NULL,
        details TEXT NOT NULL
    );
    CREATE TABLE key_usage (
        key_id TEXT NOT NULL,
        what TEXT NOT NULL,
        began INTEGER NOT NULL,
        used INTEGER NOT NULL,
        PRIMARY KEY (key_id, what, began)
    ) WITHOUT ROWID;
    CREATE TABLE admitted_runs (
        slot TEXT PRIMARY KEY,
        key_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        until REAL NOT NULL
    );
    CREATE INDEX admitted_runs_by_key ON admitted_runs (key_id);
    CREATE INDEX admitted_runs_by_run ON admitted_runs (run_id);
    CREATE TABLE ended_runs (
        run_id TEXT PRIMARY KEY,
        seen REAL NOT NULL
    );
    CREATE TABLE secrets (
        name TEXT PRIMARY KEY,
        value BLOB NOT NULL
    );
    CREATE TABLE cursors (
        name TEXT PRIMARY KEY,
        position TEXT NOT NULL
    )
"""
"""A digest covers the secret part of a key only; audit entries are never changed."""
