"""The journal of runs, pipelines and batches in SQLite or PostgreSQL."""

from services.orchestrator.journal.errors import LeaseLost
from services.orchestrator.journal.journal import Journal

__all__ = ["Journal", "LeaseLost"]
