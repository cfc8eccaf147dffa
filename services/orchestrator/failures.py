"""Failures as runs, tasks and batches store them."""

from protos.hugginggpt.v1.failure_pb2 import Failure
from services.common.errors import ServiceError


def to_failure(error: ServiceError) -> Failure:
    """Converts an error to its message."""
    failure = Failure(
        reason=error.reason, message=error.message, remedy=error.remedy, port=error.port, code=error.code.value[0]
    )
    if error.retry_after is not None:
        failure.retry_after.FromTimedelta(error.retry_after)
    return failure
