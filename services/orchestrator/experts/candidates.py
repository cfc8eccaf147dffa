"""Candidates of one task, in the order in which they are called, and the attempts at each of them."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from protos.hugginggpt.internal.v1.selector_pb2 import SelectedCandidate
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from protos.hugginggpt.v1.model_pb2 import CANDIDATE_ROLE_SHADOW, MODEL_LOCATION_INTERNAL, Candidate
from services.common import call_context
from services.common.errors import (
    FailedPrecondition,
    NotFound,
    Overloaded,
    RecoveryAction,
    ServiceError,
    Unavailable,
    recovery_action,
)
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.attempts import TaskAttempts
from services.orchestrator.experts.concurrency_limiter import Permit

_Key = tuple[str, str]
"""Expert and model."""


class CandidateUnavailable(Unavailable):
    """A candidate that cannot be called now, nor before the task's time ends."""


@dataclass
class CallHistory:
    """Calls of one candidate for one task, and its refusals."""

    calls: int = 0
    refusals: int = 0
    """Calls that it refused as overloaded (RESOURCE_EXHAUSTED)."""
    accepts_at: float = 0.0
    """End of the Retry-After of its last refusal, in monotonic seconds."""
    refused_until: Deadline | None = None
    """When it must have accepted a call, counted from its first refusal."""

    def record_refusal(self, retry_after: float, seconds: float) -> float:
        """Records a refusal.

        Args:
            retry_after: the Retry-After in seconds.
            seconds: time for retries, counted from the first refusal.

        Returns:
            Seconds left of that time.
        """
        self.refusals += 1
        self.accepts_at = time.monotonic() + retry_after
        self.refused_until = self.refused_until or Deadline(seconds)
        return self.refused_until.left

    def seconds_refused(self) -> float:
        """Seconds until the Retry-After of the last refusal ends; 0: it has ended."""
        return max(0.0, self.accepts_at - time.monotonic())


@dataclass
class CandidateAttempts:
    """Consecutive attempts at one candidate of a task."""

    attempts: TaskAttempts
    """Of the task."""
    selected: SelectedCandidate
    """The candidate, with its addresses as far as known."""
    history: CallHistory
    """Includes earlier attempts, if the task returns to this candidate."""
    deadline: Deadline
    """Of these attempts: half of the run's remaining time, or all of it for the last candidate."""
    is_last: bool
    """No candidate follows."""
    may_wait: bool
    """Whether the task waits for this candidate while it cannot be called."""
    has_alternative: Callable[[], bool]
    """Whether another candidate can be called now."""
    permit: Permit
    """Under which the limiter counts the calls."""
    number_before: int
    """Number of the task's last attempt before these."""
    excluded: set[str] = field(default_factory=set)
    """Addresses whose last call has failed: called only if no other address can be."""
    address: str = ""
    """Address of the last call. Empty: no call was made since the last wait for one."""
    delay: float | None = None
    """Seconds between the last call and the next. None: before the first call."""

    @property
    def candidate(self) -> Candidate:
        return self.selected.candidate

    @property
    def expert(self) -> str:
        return self.selected.candidate.expert

    async def refresh(self) -> None:
        """Updates the candidate's addresses from the selector, if it is available and lists the candidate."""
        self.selected = _updated(self.selected, await _reselect(self.attempts))


class CandidateQueue:
    """Candidates of one task, best first.

    Before it runs out it refreshes once from the selector, and then retries candidates that could not be called or
    refused calls as overloaded. Shadow candidates and those that the data policy forbids are left out.

    Args:
        attempts: of the task.
        seconds_to_call: returns the seconds until a candidate can be called, as far as known; 0: now.
    """

    def __init__(self, attempts: TaskAttempts, seconds_to_call: Callable[[SelectedCandidate], float]) -> None:
        self._attempts, self._seconds_to_call = attempts, seconds_to_call
        self._queue = _allowed(attempts.task.candidates)
        self._current: SelectedCandidate | None = None
        self._unavailable: list[SelectedCandidate] = []
        self._failed: set[_Key] = set()
        self._histories: defaultdict[_Key, CallHistory] = defaultdict(CallHistory)
        self._refreshed = False

    async def next(self, failure: ServiceError | None = None) -> CandidateAttempts | None:
        """Removes the next candidate; returns its attempts, or None if there is none or the failure is final.

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
        return self._start(self._current) if self._current else None

    def no_candidate_error(self) -> ServiceError:
        """The error for a task without any candidate that may be called."""
        request = self._attempts.task
        if any(selected.candidate.role != CANDIDATE_ROLE_SHADOW for selected in request.candidates):
            message = f"{request.spec.name} is offered only by external experts, and the data policy is local"
            remedy = "add an internal expert that offers it, or set the data policy to open"
            return FailedPrecondition(message, reason="POLICY", remedy=remedy)
        return NotFound(f"no candidate for {request.spec.name}", reason="MODEL", remedy="see `hugginggpt models`")

    def _start(self, selected: SelectedCandidate) -> CandidateAttempts:
        deadline, is_last, caller = self._attempts.task.deadline, self._is_last, call_context.current()
        is_batch = caller.priority == PRIORITY_BATCH
        return CandidateAttempts(
            self._attempts,
            selected,
            self._histories[_key(selected)],
            deadline if is_last else deadline.sooner(deadline.left / 2),
            is_last=is_last,
            may_wait=self._may_wait,
            has_alternative=self._has_alternative,
            permit=Permit(selected.candidate.expert, caller.tenant, caller.run_id, batch=is_batch),
            number_before=self._attempts.number,
        )

    @property
    def _is_last(self) -> bool:
        return not self._queue and (self._refreshed or not self._unavailable)

    @property
    def _may_wait(self) -> bool:
        return self._refreshed or self._is_last

    def _has_alternative(self) -> bool:
        others = self._queue if self._refreshed else (*self._queue, *self._unavailable)
        return any(not self._seconds(selected) for selected in others)

    def _seconds(self, selected: SelectedCandidate) -> float:
        """Seconds until a candidate can be called, as far as known; 0: now."""
        return max(self._seconds_to_call(selected), self._histories[_key(selected)].seconds_refused())

    def _record(self, selected: SelectedCandidate, failure: ServiceError | None) -> None:
        if failure and (isinstance(failure, CandidateUnavailable) or is_refusal(failure)) and not self._may_wait:
            self._unavailable.append(selected)
        else:
            self._failed.add(_key(selected))

    async def _refill(self) -> None:
        """Refreshes the queue: candidates that can be called now first, then the others by their time."""
        fresh = await _reselect(self._attempts)
        queue = [_updated(selected, fresh) for selected in (*self._queue, *self._unavailable)]
        known = {_key(selected) for selected in queue} | self._failed
        queue += [selected for selected in fresh if _key(selected) not in known]
        self._queue = sorted(queue, key=self._seconds)


def is_refusal(error: ServiceError) -> bool:
    """Whether an expert refused a call as overloaded and may accept it later."""
    return isinstance(error, Overloaded) and recovery_action(error) is RecoveryAction.RETRY


async def _reselect(attempts: TaskAttempts) -> Sequence[SelectedCandidate]:
    """Selects candidates again; returns none if the selector is unavailable."""
    try:
        return _allowed(await attempts.task.reselect())
    except ServiceError:
        return ()


def _updated(selected: SelectedCandidate, others: Sequence[SelectedCandidate]) -> SelectedCandidate:
    """The candidate as listed in `others`, or unchanged if it is not listed."""
    return next((other for other in others if _key(other) == _key(selected)), selected)


def _key(selected: SelectedCandidate) -> _Key:
    return selected.candidate.expert, selected.candidate.model_id


def _allowed(candidates: Sequence[SelectedCandidate]) -> list[SelectedCandidate]:
    """The candidates that the data policy allows for a result; one whose location is not stated counts as external."""
    open_ = call_context.allows_external_endpoints()
    return [
        selected
        for selected in candidates
        if selected.candidate.role != CANDIDATE_ROLE_SHADOW
        and (open_ or selected.candidate.location == MODEL_LOCATION_INTERNAL)
    ]
