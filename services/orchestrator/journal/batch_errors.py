"""Errors of operations on batches."""

from services.common.errors import AlreadyExists, FailedPrecondition, NotFound


def same_batch(batch_id: str, same: bool) -> str:
    """The ID of the batch for which an idempotency key was used.

    Raises:
        AlreadyExists: IDEMPOTENCY, that batch is another one.
    """
    if not same:
        raise AlreadyExists(
            "this idempotency key was used for another batch", reason="IDEMPOTENCY", remedy="use a new key"
        )
    return batch_id


def no_plan(batch_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"batch {batch_id} has no plan: none of its items has run, so none has failed",
        reason="UNPLANNED",
        remedy="resume it without failed_only",
    )


def unknown(batch_id: str) -> NotFound:
    remedy = "check the ID; `hugginggpt batches` or `GET /v1/batches` lists them"
    return NotFound(f"there is no batch {batch_id}", reason="BATCH", remedy=remedy)


def still_running(batch_id: str) -> FailedPrecondition:
    remedy = "cancel it first, or wait for its end"
    return FailedPrecondition(f"batch {batch_id} has not ended", reason="RUNNING", remedy=remedy)
