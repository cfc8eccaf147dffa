"""Candidates of one task: their order, the time each has, and the events of the attempts."""

from collections import defaultdict
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
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.model_pb2 import CANDIDATE_ROLE_SHADOW, MODEL_LOCATION_INTERNAL, Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import call_context, tracing
from services.common.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
    Overloaded,
    RecoveryAction,
    ServiceError,
    Unavailable,
    recovery_action,
)
from services.orchestrator import metrics
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.backoff import CallHistory, RetryBudget

Emit = Callable[[RunEvent], None]
_NEXT_STEPS = {
    RecoveryAction.RETRY: NEXT_STEP_RETRY,
    RecoveryAction.NEXT_CANDIDATE: NEXT_STEP_NEXT_CANDIDATE,
    RecoveryAction.GIVE_UP: NEXT_STEP_UNSPECIFIED,
}

Reselect = Callable[[], Awaitable[Sequence[SelectedCandidate]]]


class CandidateUnavailable(Unavailable):
    """A candidate that cannot be called now, nor before the task's time ends."""


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


class AttemptReporter:
    """Counts the attempts of a task and emits their events."""

    def __init__(self, task: TaskRequest) -> None:
        self.task = task
        self.attempt = task.last_attempt
        self.usage: Usage | None = None
        """Usage of the last call, as far as known, until an event reports it."""
        self._waited_for: set[str] = set()
        self._histories: defaultdict[tuple[str, str], CallHistory] = defaultdict(CallHistory)

    @property
    def left(self) -> float:
        """Seconds the run has left."""
        return self.task.deadline.left

    def candidate_deadline(self, *, is_last: bool) -> Deadline:
        """Deadline of the next candidate: half of the run's remaining time, or all of it for the last candidate.

        Raises:
            DeadlineExceeded: the run has no time left.
        """
        if self.left <= 0:
            message = f"no time is left for task {self.task.task_id}"
            raise DeadlineExceeded(message, remedy="give the run more time (budget.wall_time)")
        return self.task.deadline if is_last else self.task.deadline.sooner(self.left / 2)

    def history(self, candidate: Candidate) -> CallHistory:
        """Calls of a candidate for this task so far."""
        return self._histories[_key(candidate)]

    def count_unavailable(self) -> None:
        """Counts a candidate that could not be called as an attempt."""
        self.attempt += 1

    def attempt_started(self, by: Candidate) -> None:
        """Reports the start of an attempt."""
        self.attempt += 1
        self._emit(RunEvent(task_started=TaskStarted(by=by)))

    def attempt_failed(self, error: ServiceError, by: Candidate, then: RecoveryAction, delay: float = 0.0) -> None:
        """Reports a failed attempt that another attempt follows, after `delay` seconds."""
        _count(error, by, then)
        attributes: tracing.Attributes = {
            names.ATTEMPT: self.attempt,
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
        if reason not in self._waited_for:
            self._waited_for.add(reason)
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
        return TaskResult(task_id=self.task.task_id, attempt=self.attempt, by=by, failure=failure, usage=usage)

    async def reselect(self) -> Sequence[SelectedCandidate]:
        """Selects candidates again; returns none if the selector is unavailable."""
        try:
            return _allowed(await self.task.reselect())
        except ServiceError:
            return ()

    def _take_usage(self) -> Usage | None:
        usage, self.usage = self.usage, None
        return usage

    def _emit(self, event: RunEvent) -> None:
        event.task_id, event.attempt = self.task.task_id, self.attempt
        self.task.emit(event)


class CandidateQueue:
    """Candidates of one task, best first.

    Before it runs out it refreshes once from the selector, and then retries candidates that could not be called or
    refused calls as overloaded. Shadow candidates and those that the data policy forbids are left out.

    Args:
        reporter: of the task.
        seconds_to_call: returns the seconds until a candidate can be called, as far as known; 0: now.
    """

    def __init__(self, reporter: AttemptReporter, seconds_to_call: Callable[[SelectedCandidate], float]) -> None:
        self._reporter, self._seconds_to_call = reporter, seconds_to_call
        self._queue = _allowed(reporter.task.candidates)
        self._current: SelectedCandidate | None = None
        self._unavailable: list[SelectedCandidate] = []
        self._failed: set[tuple[str, str]] = set()
        self._refreshed = False

    @property
    def is_last(self) -> bool:
        """Whether no candidate follows the current one."""
        return not self._queue and (self._refreshed or not self._unavailable)

    @property
    def may_wait(self) -> bool:
        """Whether the task waits for the current candidate while it cannot be called."""
        return self._refreshed or self.is_last

    def has_alternative(self) -> bool:
        """Whether a candidate other than the current one can be called now."""
        others = self._queue if self._refreshed else (*self._queue, *self._unavailable)
        return any(not self._seconds(selected) for selected in others)

    async def next(self, failure: ServiceError | None = None) -> SelectedCandidate | None:
        """Removes and returns the next candidate; None if there is none or the failure is final.

        Args:
            failure: of the current candidate.
        """
        if failure and recovery_action(failure) is RecoveryAction.GIVE_UP:
            return None
        if self._current:
            self._record(self._current, failure)
        if not (self._refreshed or self._queue[1:] or (self._queue and not self._seconds(self._queue[0]))):
            self._refreshed = True
            await self._refill()
        self._current = self._queue.pop(0) if self._queue else None
        return self._current

    def no_candidate_error(self) -> ServiceError:
        """The error for a task without any candidate that may be called."""
        task = self._reporter.task.spec.name
        if any(selected.candidate.role != CANDIDATE_ROLE_SHADOW for selected in self._reporter.task.candidates):
            message = f"{task} is offered only by external experts, and the data policy is local"
            remedy = "add an internal expert that offers it, or set the data policy to open"
            return FailedPrecondition(message, reason="POLICY", remedy=remedy)
        return NotFound(f"no candidate for {task}", reason="MODEL", remedy="see `hugginggpt models`")

    def _seconds(self, selected: SelectedCandidate) -> float:
        """Seconds until a candidate can be called, as far as known; 0: now."""
        return max(self._seconds_to_call(selected), self._reporter.history(selected.candidate).seconds_refused())

    def _record(self, selected: SelectedCandidate, failure: ServiceError | None) -> None:
        if failure and (isinstance(failure, CandidateUnavailable) or is_refusal(failure)) and not self.may_wait:
            self._unavailable.append(selected)
        else:
            self._failed.add(_key(selected.candidate))

    async def _refill(self) -> None:
        """Refreshes the queue: candidates that can be called now first, then the others by their time."""
        fresh = await self._reporter.reselect()
        queue = [updated(selected, fresh) for selected in (*self._queue, *self._unavailable)]
        known = {_key(selected.candidate) for selected in queue} | self._failed
        queue += [selected for selected in fresh if _key(selected.candidate) not in known]
        self._queue = sorted(queue, key=self._seconds)


def is_refusal(error: ServiceError) -> bool:
    """Whether an expert refused a call as overloaded and may accept it later."""
    return isinstance(error, Overloaded) and recovery_action(error) is RecoveryAction.RETRY


def updated(selected: SelectedCandidate, others: Sequence[SelectedCandidate]) -> SelectedCandidate:
    """The candidate as listed in `others`, or unchanged if it is not listed."""
    return next((other for other in others if _key(other.candidate) == _key(selected.candidate)), selected)


def to_failure(error: ServiceError) -> Failure:
    """Converts an error to its message."""
    failure = Failure(
        reason=error.reason, message=error.message, remedy=error.remedy, port=error.port, code=error.code.value[0]
    )
    if error.retry_after is not None:
        failure.retry_after.FromTimedelta(error.retry_after)
    return failure


def _count(error: ServiceError, by: Candidate, then: RecoveryAction) -> None:
    metrics.attempts_failed.add(1, {"expert": by.expert, "code": error.code.name, "next": then.value})


def _key(candidate: Candidate) -> tuple[str, str]:
    return candidate.expert, candidate.model_id


def _allowed(candidates: Sequence[SelectedCandidate]) -> list[SelectedCandidate]:
    """The candidates that the data policy allows for a result; one whose location is not stated counts as external."""
    open_ = call_context.allows_external_endpoints()
    return [
        selected
        for selected in candidates
        if selected.candidate.role != CANDIDATE_ROLE_SHADOW
        and (open_ or selected.candidate.location == MODEL_LOCATION_INTERNAL)
    ]
