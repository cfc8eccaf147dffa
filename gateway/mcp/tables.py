"""The table of uploads that may be made once."""

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
"""A digest is of the URL's last part, which is shown once and not kept."""
