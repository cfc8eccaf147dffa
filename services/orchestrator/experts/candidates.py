"""One task on its way through its candidates: who is next, how much time is left, and what is told of it."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from protos.hugginggpt import semantic_conventions as names
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
Again = Callable[[], Awaitable[Sequence[Candidate]]]


class OutOfReach(Unavailable):
    """A candidate that cannot be called now, nor soon enough."""


_NEXT_STEPS = {
    RecoveryAction.RETRY: NEXT_STEP_RETRY,
    RecoveryAction.NEXT_CANDIDATE: NEXT_STEP_NEXT_CANDIDATE,
    RecoveryAction.GIVE_UP: NEXT_STEP_UNSPECIFIED,
}


@dataclass(frozen=True)
class Job:
    """A task whose inputs are there."""

    task_id: int
    request: InferRequest
    """Without model, revision and call id."""
    spec: TaskSpec
    """What the reply must look like."""
    candidates: Sequence[Candidate]
    """Best first."""
    emit: Emit
    """Told of every attempt's start, of what is waited for, and of every failure but the last."""
    retries: RetryBudget
    """The run's, shared by its tasks."""
    again: Again
    """Asks the selector anew, by ranking only; raises ServiceError."""
    deadline: Deadline
    """The run's."""
    last_attempt: int = 0
    """Number of the last attempt made before."""


class Asking:
    """Counts the attempts of a job and tells of them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.attempt = job.last_attempt
        self.usage: Usage | None = None
        """What the last call took, as far as is known, and nobody was told yet."""
        self._waited_for: set[str] = set()
        self._histories: defaultdict[tuple[str, str], CallHistory] = defaultdict(CallHistory)

    @property
    def left(self) -> float:
        """Seconds the run has left."""
        return self.job.deadline.left

    def until(self, *, last: bool) -> Deadline:
        """When a candidate must be done: half of what is left is for those behind it.

        Raises:
            DeadlineExceeded: nothing is left.
        """
        if self.left <= 0:
            what = f"no time is left for task {self.job.task_id}"
            raise DeadlineExceeded(what, remedy="give the run more time (budget.wall_time)")
        return self.job.deadline if last else self.job.deadline.sooner(self.left / 2)

    def history(self, candidate: Candidate) -> CallHistory:
        """The calls of a candidate so far."""
        return self._histories[_name(candidate)]

    def passed_over(self) -> None:
        """A candidate counts as an attempt though it was not called."""
        self.attempt += 1

    def started(self, candidate: Candidate, address: str) -> Candidate:
        """The candidate with the one address this attempt goes to."""
        self.attempt += 1
        by = Candidate()
        by.CopyFrom(candidate)
        del by.endpoints[:]
        by.endpoints.extend(endpoint for endpoint in candidate.endpoints if endpoint.address == address)
        self._tell(RunEvent(task_started=TaskStarted(by=by)))
        return by

    def failed(self, error: ServiceError, by: Candidate, then: RecoveryAction, delay: float = 0.0) -> None:
        """An attempt failed, and another follows."""
        _count(error, by, then)
        facts: tracing.Attributes = {
            names.ATTEMPT: self.attempt,
            names.EXPERT: by.expert,
            names.MODEL: by.model_id,
            names.ERROR: error.reason,
            names.NEXT: then.name.lower(),
            names.DELAY: delay,
        }
        tracing.add_event(names.ATTEMPT_FAILED, facts)
        event = AttemptFailed(failure=to_failure(error), by=by, next=_NEXT_STEPS[then], usage=self._taken())
        event.delay.FromTimedelta(timedelta(seconds=delay))
        self._tell(RunEvent(attempt_failed=event))

    def waits(self, expert: str, reason: str, start_duration: Duration | None = None) -> None:
        """It cannot go on just now; told once for the same reason."""
        if reason not in self._waited_for:
            self._waited_for.add(reason)
            tracing.add_event(names.WAITING, {names.EXPERT: expert})
            waiting = TaskWaiting(expert=expert, reason=reason, start_duration=start_duration)
            self._tell(RunEvent(task_waiting=waiting))

    def progressed(self, fraction: float, message: str) -> None:
        self._tell(RunEvent(task_progress=TaskProgress(fraction=fraction, message=message)))

    def ended(self, error: ServiceError, by: Candidate | None = None) -> TaskResult:
        """The result of a job that has failed for good."""
        if by:
            _count(error, by, RecoveryAction.GIVE_UP)
        failure, usage = to_failure(error), self._taken()
        return TaskResult(task_id=self.job.task_id, attempt=self.attempt, by=by, failure=failure, usage=usage)

    async def anew(self) -> Sequence[Candidate]:
        """What the selector offers now; nothing if it does not say."""
        try:
            return _allowed(await self.job.again())
        except ServiceError:
            return ()

    def _taken(self) -> Usage | None:
        usage, self.usage = self.usage, None
        return usage

    def _tell(self, event: RunEvent) -> None:
        event.task_id, event.attempt = self.job.task_id, self.attempt
        self.job.emit(event)


class Lineup:
    """Candidates in the order in which they are asked.

    Before it comes to its end the selector is asked anew, once; and those that were passed over since they could not be
    called just then, or refused as overloaded, have a second chance, for which they are waited for.

    Args:
        asking: whose candidates they are; those for comparison only are left out, and what the data policy forbids.
        seconds: until one can be called, as far as is known; 0: now.
    """

    def __init__(self, asking: Asking, seconds: Callable[[Candidate], float]) -> None:
        self._asking, self._seconds_to_call = asking, seconds
        self._queue = _allowed(asking.job.candidates)
        self._current: Candidate | None = None
        self._passed_over: list[Candidate] = []
        self._failed: set[tuple[str, str]] = set()
        self._asked = False

    @property
    def at_end(self) -> bool:
        """The one given last has nobody behind it."""
        return not self._queue and (self._asked or not self._passed_over)

    @property
    def patient(self) -> bool:
        """The one given last is worth waiting for."""
        return self._asked or self.at_end

    def has_alternative(self) -> bool:
        """Whether a candidate other than the one given last can be called now."""
        others = self._queue if self._asked else (*self._queue, *self._passed_over)
        return any(not self._seconds(candidate) for candidate in others)

    async def next(self, failure: ServiceError | None = None) -> Candidate | None:
        """The next to ask, if there is one.

        Args:
            failure: what came of the one before.
        """
        if failure and recovery_action(failure) is RecoveryAction.GIVE_UP:
            return None
        if self._current:
            self._note(self._current, failure)
        if not (self._asked or self._queue[1:] or (self._queue and not self._seconds(self._queue[0]))):
            self._asked = True
            await self._refill()
        self._current = self._queue.pop(0) if self._queue else None
        return self._current

    def nobody(self) -> ServiceError:
        """Why there was nobody to ask."""
        task = self._asking.job.spec.name
        if any(candidate.role != CANDIDATE_ROLE_SHADOW for candidate in self._asking.job.candidates):
            what = f"{task} is offered only outside the house, and the data policy is local"
            remedy = "add an expert of your own that offers it, or allow the data policy open"
            return FailedPrecondition(what, reason="POLICY", remedy=remedy)
        return NotFound(f"nobody was chosen for {task}", reason="MODEL", remedy="see `hugginggpt models`")

    def _seconds(self, candidate: Candidate) -> float:
        """Seconds until a candidate can be called, as far as is known; 0: now."""
        return max(self._seconds_to_call(candidate), self._asking.history(candidate).seconds_refused())

    def _note(self, candidate: Candidate, failure: ServiceError | None) -> None:
        if failure and (isinstance(failure, OutOfReach) or is_refusal(failure)) and not self.patient:
            self._passed_over.append(candidate)
        else:
            self._failed.add(_name(candidate))

    async def _refill(self) -> None:
        """Those that can be called now in their order, then those that cannot, the soonest first."""
        fresh = await self._asking.anew()
        left = [same(candidate, fresh) for candidate in (*self._queue, *self._passed_over)]
        known = {_name(candidate) for candidate in left} | self._failed
        left += [candidate for candidate in fresh if _name(candidate) not in known]
        self._queue = sorted(left, key=self._seconds)


def is_refusal(error: ServiceError) -> bool:
    """Whether an expert refused a call because it is overloaded, and may accept it later."""
    return isinstance(error, Overloaded) and recovery_action(error) is RecoveryAction.RETRY


def same(candidate: Candidate, others: Sequence[Candidate]) -> Candidate:
    """The candidate as it stands among others, or as it was."""
    return next((other for other in others if _name(other) == _name(candidate)), candidate)


def to_failure(error: ServiceError) -> Failure:
    """The error as an event keeps it."""
    failure = Failure(
        reason=error.reason, message=error.message, remedy=error.remedy, port=error.port, code=error.code.name
    )
    if error.retry_after is not None:
        failure.retry_after.FromTimedelta(error.retry_after)
    return failure


def _count(error: ServiceError, by: Candidate, then: RecoveryAction) -> None:
    metrics.attempts_failed.add(1, {"expert": by.expert, "code": error.code.name, "next": then.value})


def _name(candidate: Candidate) -> tuple[str, str]:
    return candidate.expert, candidate.model_id


def _allowed(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that may be given the caller's bytes, for their result: whatever is not said to be inside is outside."""
    open_ = call_context.allows_external_endpoints()
    return [
        candidate
        for candidate in candidates
        if candidate.role != CANDIDATE_ROLE_SHADOW and (open_ or candidate.location == MODEL_LOCATION_INTERNAL)
    ]
