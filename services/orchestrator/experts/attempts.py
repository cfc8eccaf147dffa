"""Attempts at one task: its request, its retry budgets, and the events of its attempts."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from protos.hugginggpt import semantic_conventions as names
from protos.hugginggpt.internal.v1.selector_pb2 import SelectedCandidate
from protos.hugginggpt.v1.event_pb2 import (
    NEXT_STEP_NEXT_CANDIDATE,
    NEXT_STEP_RETRY,
    NEXT_STEP_UNSPECIFIED,
    AttemptFailed,
    RunEvent,
    TaskProgress,
    TaskStarted,
    TaskWaiting,
)
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import tracing
from services.common.errors import (
    RecoveryAction,
    ServiceError,
    to_failure,
)
from services.orchestrator import metrics
from services.orchestrator.deadline import Deadline

INITIAL_RETRIES = 10.0
"""Retries available before any call is made: enough for one task to outlast the restart of an expert."""

RETRIES_PER_CALL = 0.2
"""Retries that each call adds: in a long outage retries add at most a quarter to the number of calls."""

Emit = Callable[[RunEvent], None]
Reselect = Callable[[], Awaitable[Sequence[SelectedCandidate]]]

_NEXT_STEPS = {
    RecoveryAction.RETRY: NEXT_STEP_RETRY,
    RecoveryAction.NEXT_CANDIDATE: NEXT_STEP_NEXT_CANDIDATE,
    RecoveryAction.GIVE_UP: NEXT_STEP_UNSPECIFIED,
}

MORE_TIME = "give the run more time (budget.wall_time), or send a smaller request"
"""Remedy of a task whose deadline has passed."""


class RetryBudget:
    """Number of retries left: calls add to it, each retry takes one."""

    def __init__(self) -> None:
        self.left = INITIAL_RETRIES

    def earn(self) -> None:
        """Adds the share of one call."""
        self.left = min(INITIAL_RETRIES, self.left + RETRIES_PER_CALL)


def spend(*budgets: RetryBudget) -> bool:
    """Takes one retry from each budget; returns False, and takes none, if one of them has none left."""
    if any(budget.left < 1 for budget in budgets):
        return False
    for budget in budgets:
        budget.left -= 1
    return True


@dataclass(frozen=True)
class TaskRequest:
    """A task with resolved inputs, its candidates and its limits."""

    task_id: int
    request: InferRequest
    """Without model, revision and call ID."""
    spec: TaskSpec
    """Declares the outputs that a reply must have."""
    candidates: Sequence[SelectedCandidate]
    """Best first."""
    emit: Emit
    """Takes an event for each start of an attempt, each wait, and each failure except the last."""
    retries: RetryBudget
    """Shared by all tasks of the run."""
    reselect: Reselect
    """Selects candidates again, by rank only; raises ServiceError."""
    deadline: Deadline
    """Of the run."""
    last_attempt: int = 0
    """Number of the last attempt made before a takeover or restart; 0: none."""


class TaskAttempts:
    """Counts the attempts of a task, and emits their events."""

    def __init__(self, task: TaskRequest) -> None:
        self.task = task
        self.number = task.last_attempt
        """Number of the last attempt."""
        self.usage: Usage | None = None
        """Usage of the last call, as far as known, until an event reports it."""
        self._reported_waits: set[str] = set()

    @property
    def seconds_left(self) -> float:
        """Seconds the run has left."""
        return self.task.deadline.left

    def count_unavailable(self) -> None:
        """Counts a candidate that could not be called as an attempt."""
        self.number += 1

    def report_start(self, by: Candidate) -> None:
        """Reports the start of the next attempt."""
        self.number += 1
        self._emit(RunEvent(task_started=TaskStarted(by=by)))

    def report_failure(self, error: ServiceError, by: Candidate, then: RecoveryAction, delay: float = 0.0) -> None:
        """Reports a failed attempt that another attempt follows, after `delay` seconds."""
        _count(error, by, then)
        attributes: tracing.Attributes = {
            names.ATTEMPT: self.number,
            names.EXPERT: by.expert,
            names.MODEL: by.model_id,
            names.ERROR: error.reason,
            names.NEXT: then.name.lower(),
            names.DELAY: delay,
        }
        tracing.add_event(names.ATTEMPT_FAILED, attributes)
        event = AttemptFailed(failure=to_failure(error), by=by, next=_NEXT_STEPS[then], usage=self._take_usage())
        event.delay.FromTimedelta(timedelta(seconds=delay))
        self._emit(RunEvent(attempt_failed=event))

    def report_waiting(self, expert: str, reason: str, start_duration: Duration | None = None) -> None:
        """Reports that the task waits for an expert; each reason is reported once."""
        if reason not in self._reported_waits:
            self._reported_waits.add(reason)
            tracing.add_event(names.WAITING, {names.EXPERT: expert})
            waiting = TaskWaiting(expert=expert, reason=reason, start_duration=start_duration)
            self._emit(RunEvent(task_waiting=waiting))

    def report_progress(self, fraction: float, message: str) -> None:
        """Reports the progress of the current call; `fraction` is between 0 and 1."""
        self._emit(RunEvent(task_progress=TaskProgress(fraction=fraction, message=message)))

    def failed_result(self, error: ServiceError, by: Candidate | None = None) -> TaskResult:
        """Result of a task of which all attempts have failed."""
        if by:
            _count(error, by, RecoveryAction.GIVE_UP)
        failure, usage = to_failure(error), self._take_usage()
        return TaskResult(task_id=self.task.task_id, attempt=self.number, by=by, failure=failure, usage=usage)

    def _take_usage(self) -> Usage | None:
        usage, self.usage = self.usage, None
        return usage

    def _emit(self, event: RunEvent) -> None:
        event.task_id, event.attempt = self.task.task_id, self.number
        self.task.emit(event)


def _count(error: ServiceError, by: Candidate, then: RecoveryAction) -> None:
    metrics.attempts_failed.add(1, {"expert": by.expert, "code": error.code.name, "next": then.value})
