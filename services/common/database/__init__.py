"""SQLite or PostgreSQL behind one interface to write, read and watch, with versioned schemas.

A write is an operation: a generator that yields queries, receives their rows, and returns a result. It has no other
side effects, so that it can run on either database, in a thread, and again when the database asks for a retry.
"""

from services.common.database.factory import DEFAULT_CONNECTIONS, open_database
from services.common.database.queries import (
    ConstraintViolation,
    Database,
    Dialect,
    InsertInto,
    Operation,
    Query,
    Rows,
    Steps,
)

__all__ = [
    "DEFAULT_CONNECTIONS",
    "ConstraintViolation",
    "Database",
    "Dialect",
    "InsertInto",
    "Operation",
    "Query",
    "Rows",
    "Steps",
    "open_database",
]
