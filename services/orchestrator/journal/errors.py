"""Errors of the journal."""

from services.common.errors import CorruptData, NotFound, Unavailable


class LeaseLost(Unavailable):
    """Another orchestrator owns the run or batch now."""

    reason = "LEASE_LOST"


def unreadable(run_id: str) -> CorruptData:
    """The error for a run whose stored events cannot be decoded or are inconsistent."""
    return CorruptData(
        f"the stored events of run {run_id} cannot be read",
        remedy="start it again; the orchestrator's log has the error",
    )


def unknown_run(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id}", reason="RUN", remedy="check the ID; `GET /v1/runs` lists them")
