"""SQLite or PostgreSQL for those who own state: one way to write, read and watch, versioned schemas.

What is written is an operation: a generator that yields queries, is sent their rows, and returns a result. It touches
nothing else, so that it runs on either database, in a thread or not, and again where a database asks for it.
"""

from services.common.database.factory import opened
from services.common.database.queries import Contradiction, Database, Dialect, Into, Operation, Query, Rows, Steps

__all__ = ["Contradiction", "Database", "Dialect", "Into", "Operation", "Query", "Rows", "Steps", "opened"]
