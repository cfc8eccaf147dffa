"""What the gateway keeps: one database, SQLite beside the runs or PostgreSQL, in a schema of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.auth.audit import seal
from gateway.auth.tables import ACCESS
from gateway.mcp.tables import UPLOADS
from gateway.stored_files.tables import FILING
from gateway.webhooks.tables import BATCHES, WEBHOOKS
from services.common.database import Database, open_database

SCHEMA = "gateway"

MIGRATIONS: tuple[str, ...] = (ACCESS, FILING, UPLOADS, WEBHOOKS, BATCHES)
"""In SQLite's words; services.common.database.migrations says what a script may do."""


@asynccontextmanager
async def gateway_store(address: str) -> AsyncIterator[Database]:
    """The gateway's database, its tables up to date; closed when the block exits.

    Args:
        address: a SQLite file's path, or postgresql://user:password@host:port/name.

    Raises:
        ServiceError: it cannot be opened, as services.common.database.opened says.
    """
    async with open_database(address, SCHEMA, MIGRATIONS) as database:
        await seal(database)
        yield database
