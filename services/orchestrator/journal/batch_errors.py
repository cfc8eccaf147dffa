"""What is said of batches with which something cannot be done."""

from services.common.errors import AlreadyExists, FailedPrecondition, NotFound


def same_batch(batch_id: str, same: bool) -> str:
    """The batch for which a key stands already.

    Raises:
        AlreadyExists: IDEMPOTENCY, it is not the same.
    """
    if not same:
        raise AlreadyExists(
            "this idempotency key was used for another batch", reason="IDEMPOTENCY", remedy="use a new key"
        )
    return batch_id


def unplanned(batch_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"batch {batch_id} has no plan: none of its items has run, so none has failed",
        reason="UNPLANNED",
        remedy="resume it as a whole",
    )


def unknown(batch_id: str) -> NotFound:
    remedy = "check the id; `hugginggpt batches` or `GET /v1/batches` lists them"
    return NotFound(f"there is no batch {batch_id}", reason="BATCH", remedy=remedy)


def under_way(batch_id: str) -> FailedPrecondition:
    remedy = "cancel it first, or wait for its end"
    return FailedPrecondition(f"batch {batch_id} is under way", reason="RUNNING", remedy=remedy)
