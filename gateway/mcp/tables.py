"""Table of the single-use upload tokens."""

UPLOADS = """
    CREATE TABLE uploads (
        digest BLOB PRIMARY KEY,
        tenant TEXT NOT NULL,
        key_id TEXT NOT NULL,
        limits TEXT NOT NULL,
        name TEXT NOT NULL,
        expires REAL NOT NULL
    );
    CREATE INDEX uploads_by_expiry ON uploads (expires)
"""
"""`digest` is the SHA-256 of the token, which is not stored."""
