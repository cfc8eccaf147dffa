"""The gateway's database: a schema of its own in SQLite or PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.auth.audit import forbid_audit_changes
from gateway.auth.tables import ACCESS
from gateway.core.files import FILES
from gateway.mcp.upload_tokens import UPLOADS
from gateway.webhooks.registry import BATCHES, WEBHOOKS
from services.common.database import Database, open_database

SCHEMA = "gateway"

MIGRATIONS: tuple[str, ...] = (ACCESS, FILES, UPLOADS, WEBHOOKS, BATCHES)
"""SQLite scripts; services.common.database.migrations describes which statements they may contain."""


@asynccontextmanager
async def gateway_store(address: str) -> AsyncIterator[Database]:
    """Opens the gateway's database with its tables up to date; closes it when the block exits.

    Args:
        address: path of a SQLite file, or postgresql://user:password@host:port/name.

    Raises:
        ServiceError: the database cannot be opened, as described in services.common.database.opened.
    """
    async with open_database(address, SCHEMA, MIGRATIONS) as database:
        await forbid_audit_changes(database)
        yield database
