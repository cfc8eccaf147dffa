"""Runs and batches that fail whenever they are taken over: how often, and why they then end as FAILED."""

from collections import Counter

from protos.hugginggpt.v1.failure_pb2 import Failure
from services.common.errors import CorruptData, FailedPrecondition, Unavailable

TAKEOVER_ATTEMPTS = 3
"""Takeovers that may fail before a run or batch ends as FAILED: another release of this program may succeed before."""

MOST_COUNTED = 10_000
"""Runs and batches counted at a time; the oldest are forgotten first."""


class FaultCounter:
    """Counts by id the takeovers that failed in this process for another reason than a transient error."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, key: str, error: Exception) -> bool:
        """Counts a failure; returns whether it was the last attempt."""
        if is_transient(error):
            return False
        self._counts[key] += 1
        if len(self._counts) > MOST_COUNTED:
            del self._counts[next(iter(self._counts))]
        return self._counts[key] >= TAKEOVER_ATTEMPTS

    def forget(self, key: str) -> None:
        """Counts from 0 again: it has ended, or the attempt worked."""
        self._counts.pop(key, None)


def is_transient(error: BaseException) -> bool:
    """Whether an error may pass without a change of what is stored: a database that is not there, or refuses a user."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_transient(each) for each in error.exceptions)
    refused = isinstance(error, FailedPrecondition) and error.reason == "DATABASE"
    return refused or isinstance(error, Unavailable | OSError)


def failure_of(what: str, error: Exception) -> Failure:
    """Why a run or batch ends without having been done.

    Args:
        what: "run" or "batch".
        error: the one at the last attempt; only the log has its text, which may hold user data.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, CorruptData):
        return Failure(
            reason=error.reason,
            code=error.code.name,
            message=f"what is stored of this {what} cannot be read",
            remedy=f"start the {what} again; the orchestrator's log has the error",
        )
    return Failure(
        reason="INTERNAL",
        code="INTERNAL",
        message=f"this {what} could not be continued in {TAKEOVER_ATTEMPTS} attempts: internal error",
        remedy=f"start the {what} again; the orchestrator's log has the error",
    )
