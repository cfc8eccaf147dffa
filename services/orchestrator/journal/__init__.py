"""What is kept of runs, in SQLite or PostgreSQL: tables, statements, the journal over them, and what is collected."""

from services.orchestrator.journal.errors import LeaseLost
from services.orchestrator.journal.journal import Journal

__all__ = ["Journal", "LeaseLost"]
