"""Counts failed takeovers of runs and batches, so that those that fail repeatedly can be ended."""

from collections import Counter

from google.rpc import code_pb2

from protos.hugginggpt.v1.failure_pb2 import Failure
from services.common.errors import CorruptData, FailedPrecondition, Unavailable

TAKEOVER_ATTEMPTS = 3
"""Failed takeovers after which a run or batch ends as FAILED; another release of this program may succeed before."""

MAX_COUNTED = 10_000
"""Runs and batches counted at a time; the oldest counts are dropped first."""


class FailedTakeovers:
    """Failed takeovers in this process by run or batch ID, without those caused by transient errors."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, key: str, error: Exception) -> bool:
        """Counts a failed takeover; returns whether it was the last attempt."""
        if is_transient(error):
            return False
        self._counts[key] += 1
        if len(self._counts) > MAX_COUNTED:
            del self._counts[next(iter(self._counts))]
        return self._counts[key] >= TAKEOVER_ATTEMPTS

    def forget(self, key: str) -> None:
        """Drops the count, because the run or batch has ended or was continued."""
        self._counts.pop(key, None)


def is_transient(error: BaseException) -> bool:
    """Whether an error may pass without a change of the stored data, such as an unavailable database."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_transient(each) for each in error.exceptions)
    refused = isinstance(error, FailedPrecondition) and error.reason == "DATABASE"
    return refused or isinstance(error, Unavailable | OSError)


def takeover_failure(kind: str, error: Exception) -> Failure:
    """The failure of a run or batch that cannot be continued.

    Args:
        kind: "run" or "batch".
        error: of the last takeover; its text is only logged, because it may contain user data.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, CorruptData):
        return Failure(
            reason=error.reason,
            code=error.code.value[0],
            message=f"the stored data of this {kind} cannot be read",
            remedy=f"start the {kind} again; the orchestrator's log has the error",
        )
    return Failure(
        reason="INTERNAL",
        code=code_pb2.INTERNAL,
        message=f"this {kind} could not be continued in {TAKEOVER_ATTEMPTS} attempts: internal error",
        remedy=f"start the {kind} again; the orchestrator's log has the error",
    )
