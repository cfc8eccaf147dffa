"""The gateway's database: a schema of its own in SQLite or PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.auth.audit import forbid_audit_changes
from gateway.core.files import FILES
from gateway.mcp.upload_tokens import UPLOADS
from gateway.openai.batch_store import OPENAI_BATCHES
from gateway.webhooks.registry import BATCHES, WEBHOOKS
from services.common.database import DEFAULT_CONNECTIONS, Database, open_database

SCHEMA = "gateway"

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
"""API keys, audit entries, usage counters, run slots and secrets.

A digest covers the secret part of a key only; audit entries are never changed.
"""

MIGRATIONS: tuple[str, ...] = (ACCESS, FILES, UPLOADS, WEBHOOKS, BATCHES, OPENAI_BATCHES)
"""SQLite scripts; services.common.database.migrations describes which statements they may contain."""


@asynccontextmanager
async def gateway_store(address: str, connections: int = DEFAULT_CONNECTIONS) -> AsyncIterator[Database]:
    """Opens the gateway's database with its tables up to date; closes it when the block exits.

    Args:
        address: path of a SQLite file, or postgresql://user:password@host:port/name.
        connections: of this process to PostgreSQL.

    Raises:
        ServiceError: the database cannot be opened, as open_database describes.
    """
    async with open_database(address, SCHEMA, MIGRATIONS, connections) as database:
        await forbid_audit_changes(database)
        yield database
