"""Retries the calls of one candidate for one task, and waits until the candidate can be called."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from protos.hugginggpt.internal.v1.selector_pb2 import SelectedCandidate
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common import call_context
from services.common.errors import DeadlineExceeded, Overloaded, RecoveryAction, ServiceError, recovery_action
from services.orchestrator.experts.backoff import (
    MAX_REFUSAL_WAIT_SECONDS,
    REFUSALS_BEFORE_NEXT,
    RetryBudget,
    backoff,
    refusal_backoff,
    spend,
)
from services.orchestrator.experts.candidates import AttemptReporter, CandidateUnavailable, is_refusal, updated
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.infer_call import InferCaller
from services.orchestrator.experts.limiter import ConcurrencyLimiter, Permit

MAX_CALLS = 8
"""Limit of calls of one candidate for one task, including those that it refuses as overloaded."""

MAX_BATCH_CALLS = 32
"""The same limit for an item of a batch: items that compete for one expert are refused often, and no client waits for
a single item. Each address of the candidate after the first adds one call."""

MAX_PROBE_WAIT_SECONDS = 10.0
"""Longest wait for the next probe of an unavailable expert, once a task has no other candidate."""

DEFAULT_START_SECONDS = 180.0
"""Assumed start time of an expert whose start was never measured."""

REPORT_WAIT_AFTER_SECONDS = 0.5
"""A wait for a permit is reported after this time."""

_MORE_TIME = "give the run more time (budget.wall_time), or send a smaller request"


@dataclass(frozen=True)
class CallDependencies:
    """What the calls of all tasks share."""

    calls: InferCaller
    limiter: ConcurrencyLimiter
    catalogue: CatalogueWatcher
    attempt_seconds: float
    """Timeout of one call."""
    overload_seconds: float
    """How long a task retries an expert that refuses calls as overloaded."""


class RetryingCall:
    """Calls of one candidate for one task.

    Args:
        dependencies: shared by all tasks.
        reporter: of the task.
        selected: the candidate to call.
        retries: retry budget of the candidate's expert.
        is_last: no other candidate follows.
        may_wait: wait for the candidate while it cannot be called.
        has_alternative: returns whether another candidate can be called now.

    Raises:
        DeadlineExceeded: no time is left.
    """

    def __init__(
        self,
        dependencies: CallDependencies,
        reporter: AttemptReporter,
        selected: SelectedCandidate,
        retries: RetryBudget,
        *,
        is_last: bool,
        may_wait: bool,
        has_alternative: Callable[[], bool],
    ) -> None:
        self._calls, self._limiter, self._catalogue = dependencies.calls, dependencies.limiter, dependencies.catalogue
        self._attempt_seconds, self._overload_seconds = dependencies.attempt_seconds, dependencies.overload_seconds
        self._reporter, self._selected = reporter, selected
        self._is_last, self._may_wait, self._has_alternative = is_last, may_wait, has_alternative
        self._deadline = reporter.candidate_deadline(is_last=is_last)
        self._budgets = reporter.task.retries, retries
        self._history = reporter.history(self._candidate)
        self._excluded: set[str] = set()
        caller = call_context.current()
        self._permit = Permit(
            self._candidate.expert, caller.tenant, caller.run_id, batch=caller.priority == PRIORITY_BATCH
        )

    async def result(self) -> TaskResult:
        """Calls the candidate until it succeeds or must not be called again; returns its result.

        Raises:
            CandidateUnavailable: it cannot be called before the time ends.
            ServiceError: the error of its last call.
        """
        await self._wait_for_retry_after()
        while True:
            address = await self._acquire_address()
            try:
                return await self._call(address)
            except ServiceError as error:
                delay = self._pause(error, address)
                if delay is None:
                    raise
                self._reporter.attempt_failed(error, self._candidate, RecoveryAction.RETRY, delay)
            finally:
                self._limiter.release(self._permit)
            if self._is_callable():
                await asyncio.sleep(delay)

    # ------------------------------------------------------------ a call

    async def _call(self, address: str) -> TaskResult:
        self._history.calls += 1
        for budget in self._budgets:
            budget.earn()
        seconds = min(self._attempt_seconds, self._left)
        if seconds <= 0:
            raise self._deadline_error("was called")
        return await self._calls.call(self._reporter, self._candidate, address, seconds)

    def _pause(self, error: ServiceError, address: str) -> float | None:
        """Seconds until the next call; None if none follows.

        Raises:
            CandidateUnavailable: none is possible before the time ends.
        """
        if recovery_action(error) is not RecoveryAction.RETRY:
            return None
        self._excluded.add(address)
        has_other = self._calls.has_other_address(self._selected, self._excluded)
        retry_after = error.retry_after.total_seconds() if error.retry_after else 0.0
        refused, left = is_refusal(error), self._left
        if refused:
            left = min(left, self._history.refused(0.0 if has_other else retry_after, self._overload_seconds))
        if self._is_exhausted(error, 0.0 if has_other else retry_after, has_other_address=has_other):
            return None
        if not has_other and not self._is_callable():
            return self._seconds_to_probe()
        # A call at the time that the expert named adds no load, nor does one that moves away from a failed address.
        is_free = (refused and retry_after) or self._calls.is_address_down(self._candidate, address)
        if not (is_free or spend(*self._budgets)):
            return None
        if refused and not has_other:
            delay = refusal_backoff(self._history.refusals, retry_after, batch=self._permit.batch)
        else:
            delay = backoff(self._history.calls)
            if retry_after and not has_other:
                delay = retry_after + min(delay, retry_after)
        return delay if delay < left else None

    def _is_exhausted(self, error: ServiceError, wait: float, *, has_other_address: bool) -> bool:
        """Whether this candidate must not be called again.

        Refusals count against the limit of calls. While another candidate can be called now, this one may refuse
        twice, or once if its Retry-After is long.

        Args:
            error: of its last call.
            wait: its Retry-After in seconds.
            has_other_address: another of its addresses can be called now.
        """
        history = self._history
        limit = (MAX_BATCH_CALLS if self._permit.batch else MAX_CALLS) + max(0, len(self._selected.endpoints) - 1)
        if history.calls >= limit or history.calls - history.refusals >= MAX_CALLS:
            return True
        if isinstance(error, DeadlineExceeded):
            return not (self._is_last or has_other_address)
        if not is_refusal(error):
            return False
        is_enough = wait > MAX_REFUSAL_WAIT_SECONDS or history.refusals >= REFUSALS_BEFORE_NEXT
        return is_enough and self._has_alternative()

    # ------------------------------------------------------------ waiting

    async def _wait_for_retry_after(self) -> None:
        """Waits until the Retry-After of an earlier refusal ends.

        Raises:
            Overloaded: it ends after the time that is left.
        """
        seconds, refusal_deadline = self._history.seconds_refused(), self._history.refused_until
        if not seconds or refusal_deadline is None:
            return
        expert = self._candidate.expert
        if seconds >= min(self._left, refusal_deadline.left):
            message = f"expert {expert} is overloaded; it accepts calls again in {math.ceil(seconds)} s"
            raise Overloaded(message, remedy="try again later", retry_after=timedelta(seconds=seconds))
        self._reporter.report_waiting(expert, f"{expert} is overloaded; it is called again in {math.ceil(seconds)} s")
        await asyncio.sleep(seconds)

    async def _acquire_address(self) -> str:
        """Waits for an address that can be called and for a permit, which is then held."""
        while True:
            if not self._selected.endpoints:
                await self._wait_for_start()
            elif not self._is_callable():
                await self._wait_for_recovery()
            else:
                await self._acquire_permit()
                if address := self._calls.choose_address(self._selected, self._excluded):
                    return address
                self._limiter.release(self._permit)

    def _is_callable(self) -> bool:
        return not self._calls.seconds_left(self._selected)

    async def _acquire_permit(self) -> None:
        if self._limiter.try_acquire(self._permit):
            return
        expert = self._candidate.expert
        reason = f"the limit of concurrent calls of {expert}, or of this run, is reached"
        loop = asyncio.get_running_loop()
        notice = loop.call_later(REPORT_WAIT_AFTER_SECONDS, self._reporter.report_waiting, expert, reason)
        try:
            async with asyncio.timeout(self._left):
                await self._limiter.acquire(self._permit)
        except TimeoutError:
            raise self._deadline_error("could be called") from None
        finally:
            notice.cancel()

    async def _wait_for_recovery(self) -> None:
        """Waits until a circuit of the candidate changes, or until its next probe."""
        seconds, expert = self._seconds_to_probe(), self._candidate.expert
        self._reporter.report_waiting(expert, f"{self._unavailable_reason()}; it is probed until it recovers")
        await self._calls.circuits.wait_for_change(seconds)
        if all(self._calls.is_address_down(self._candidate, endpoint.address) for endpoint in self._selected.endpoints):
            await self._refresh_candidate()

    def _seconds_to_probe(self) -> float:
        seconds = self._calls.seconds_left(self._selected)
        if self._may_wait and seconds < min(MAX_PROBE_WAIT_SECONDS, self._left):
            return seconds
        expert, retry_after = self._candidate.expert, timedelta(seconds=seconds)
        remedy = f"see the log of {expert}, or restart it; it is probed again in {math.ceil(seconds)} s"
        message = self._unavailable_reason()
        raise CandidateUnavailable(message, reason="CIRCUIT_OPEN", remedy=remedy, retry_after=retry_after)

    def _unavailable_reason(self) -> str:
        candidate = self._candidate
        address_error, model_error = self._calls.unavailable_reasons(self._selected)
        if model_error:
            return f"model {candidate.model_id} of expert {candidate.expert} keeps failing: {model_error}"
        return f"expert {candidate.expert} cannot be reached: {address_error}"

    async def _wait_for_start(self) -> None:
        """Waits until a dormant expert has an address."""
        candidate, expert = self._candidate, self._candidate.expert
        if not candidate.dormant:
            remedy = "start the expert, or try again later"
            raise CandidateUnavailable(f"expert {expert} has no address", remedy=remedy)
        start = candidate.start_duration.ToTimedelta().total_seconds() or DEFAULT_START_SECONDS
        if start > self._reporter.left:
            message = f"expert {expert} is dormant and takes about {start:.0f} s to start, longer than the time left"
            remedy = f"start {expert} first, or {_MORE_TIME}"
            raise CandidateUnavailable(message, reason="EXPERT_DORMANT", remedy=remedy)
        reason = f"{expert} is dormant; it takes about {start:.0f} s to start"
        start_duration = candidate.start_duration if candidate.HasField("start_duration") else None
        self._reporter.report_waiting(expert, reason, start_duration)
        try:
            async with asyncio.timeout(max(self._left, min(start, self._reporter.left))):
                with self._catalogue.watched() as changed:
                    while not self._selected.endpoints:
                        version = changed.version
                        await self._refresh_candidate()
                        if not self._selected.endpoints:
                            await changed.wait(version)
        except TimeoutError:
            message, remedy = f"expert {expert} did not start in time", f"see why {expert} does not start"
            raise CandidateUnavailable(message, reason="EXPERT_DORMANT", remedy=remedy) from None

    async def _refresh_candidate(self) -> None:
        """Updates the candidate's addresses from the selector."""
        self._selected = updated(self._selected, await self._reporter.reselect())

    @property
    def _candidate(self) -> Candidate:
        return self._selected.candidate

    @property
    def _left(self) -> float:
        """Seconds this candidate has left."""
        return self._deadline.left

    def _deadline_error(self, event: str) -> DeadlineExceeded:
        message = f"the deadline passed before {self._candidate.expert} {event}"
        return DeadlineExceeded(message, remedy=_MORE_TIME)
