"""Errors of the journal."""

from services.common.errors import AlreadyExists, CorruptData, FailedPrecondition, NotFound, Unavailable


class LeaseLost(Unavailable):
    """Another orchestrator owns the run or batch now."""

    reason = "LEASE_LOST"


def unknown_run(run_id: str) -> NotFound:
    """The error for a run that does not exist, or belongs to another tenant."""
    return NotFound(f"there is no run {run_id}", reason="RUN", remedy="check the ID; `GET /v1/runs` lists them")


def unreadable(run_id: str) -> CorruptData:
    """The error for a run whose stored events cannot be decoded or are inconsistent."""
    return CorruptData(
        f"the stored events of run {run_id} cannot be read",
        remedy="start it again; the orchestrator's log has the error",
    )


def unknown_batch(batch_id: str) -> NotFound:
    """The error for a batch that does not exist, or belongs to another tenant."""
    remedy = "check the ID; `hugginggpt batches` or `GET /v1/pipeline-batches` lists them"
    return NotFound(f"there is no batch {batch_id}", reason="BATCH", remedy=remedy)


def still_running(batch_id: str) -> FailedPrecondition:
    """The error for an operation that needs an ended batch."""
    remedy = "cancel it first, or wait for its end"
    return FailedPrecondition(f"batch {batch_id} has not ended", reason="RUNNING", remedy=remedy)


def key_reused(resource: str) -> AlreadyExists:
    """The error for an idempotency key that was used for another request or batch."""
    return AlreadyExists(
        f"this idempotency key was used for another {resource}", reason="IDEMPOTENCY", remedy="use a new key"
    )
