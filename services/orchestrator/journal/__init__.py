"""The journal of runs, pipelines and batches in SQLite or PostgreSQL."""

from services.orchestrator.journal.journal import Journal
from services.orchestrator.journal.store import LeaseLost

__all__ = ["Journal", "LeaseLost"]
