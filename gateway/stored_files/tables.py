"""Table of stored files."""

FILES = """
    CREATE TABLE files (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        artifact BLOB NOT NULL,
        purpose TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL
    );
    CREATE INDEX files_by_tenant ON files (tenant, created, id);
    CREATE INDEX files_by_expiry ON files (expires) WHERE expires IS NOT NULL
"""
