"""Client of all experts: calls the candidates of a task until one succeeds, each once it can be called."""

import asyncio
import math
import time
from datetime import timedelta
from typing import Self

from protos.hugginggpt import semantic_conventions as names
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common.errors import DeadlineExceeded, Overloaded, RecoveryAction, ServiceError
from services.orchestrator import metrics
from services.orchestrator.experts.attempts import MORE_TIME, TaskAttempts, TaskRequest
from services.orchestrator.experts.candidates import CandidateAttempts, CandidateQueue, CandidateUnavailable
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.concurrency_limiter import ConcurrencyLimiter
from services.orchestrator.experts.health import ExpertHealth
from services.orchestrator.experts.infer_call import InferCaller
from services.orchestrator.experts.replies import Prices
from services.orchestrator.experts.retry import RetryPolicy
from services.orchestrator.experts.shadow import ShadowRunner

FORGET_EVERY_SECONDS = 60.0

DEFAULT_START_SECONDS = 180.0
"""Assumed start time of an expert whose start was never measured."""

REPORT_WAIT_AFTER_SECONDS = 0.5
"""A wait for a permit is reported after this time."""


class ExpertClient:
    """Calls experts, with limits, retries, circuit breakers and load balancing shared by all runs of this process.

    Args:
        catalogue: reports when a dormant expert has started.
        attempt_seconds: timeout of one call, if the run has that much time left.
        overload_seconds: how long a task retries an expert that refuses calls as overloaded.
        calls_at_once: limit of concurrent calls.
        calls_per_expert: limit of concurrent calls of one expert.
        calls_per_run: limit of concurrent calls of one run.
        prices: price table.
    """

    def __init__(
        self,
        catalogue: CatalogueWatcher,
        *,
        attempt_seconds: float,
        overload_seconds: float,
        calls_at_once: int,
        calls_per_expert: int,
        calls_per_run: int,
        prices: Prices,
    ) -> None:
        self.health = ExpertHealth()
        """Of all experts, as their calls have shown."""
        limiter = ConcurrencyLimiter(at_once=calls_at_once, per_expert=calls_per_expert, per_run=calls_per_run)
        self._waiter = CandidateWaiter(self.health, limiter, catalogue)
        self._calls = InferCaller(self.health, attempt_seconds, prices)
        self._retry_policy = RetryPolicy(self.health, overload_seconds)
        self._shadows = ShadowRunner(self.infer)
        self._forget_at = time.monotonic() + FORGET_EVERY_SECONDS

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shadows.close()
        await self._calls.close()

    def run_shadows(self, task: TaskRequest, result: TaskResult) -> None:
        """Starts the shadow candidates of a task that has succeeded, in the background."""
        self._shadows.start(task, result)

    async def infer(self, task: TaskRequest) -> TaskResult:
        """Calls the candidates until one succeeds; returns its outputs, or the failure of the last attempt."""
        await self._forget_unused()
        attempts = TaskAttempts(task)
        queue = CandidateQueue(attempts, self.health.seconds_to_call)
        current = await queue.next()
        if current is None:
            return attempts.failed_result(queue.no_candidate_error())
        while True:
            try:
                return await self._attempt(current)
            except ServiceError as error:
                delay_or_error = self._retry_policy.next_delay(current, error)
                if isinstance(delay_or_error, float):
                    current.delay = delay_or_error
                    attempts.report_failure(error, current.candidate, RecoveryAction.RETRY, delay_or_error)
                    continue
                following = await queue.next(delay_or_error) if attempts.seconds_left > 0 else None
                if following is None:
                    return attempts.failed_result(delay_or_error, current.candidate)
                attempts.report_failure(delay_or_error, current.candidate, RecoveryAction.NEXT_CANDIDATE)
                current = following

    async def _attempt(self, current: CandidateAttempts) -> TaskResult:
        """Waits until the candidate can be called, and calls it once."""
        labels = {"expert": current.expert, names.REQUEST_MODEL: current.candidate.model_id}
        metrics.expert_queue_depth.add(1, labels)
        try:
            address = await self._waiter.acquire_address(current)
            try:
                self._retry_policy.record_call(current, address)
                return await self._calls.call(current, address)
            finally:
                self._waiter.release(current)
        except CandidateUnavailable:
            if current.attempts.number == current.number_before:
                current.attempts.count_unavailable()
            raise
        finally:
            metrics.expert_queue_depth.add(-1, labels)

    async def _forget_unused(self) -> None:
        """Drops channels, load and circuits of addresses that are no longer used, at most once a minute."""
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_EVERY_SECONDS
            await self._calls.close_unused(self.health.forget_unused())


class CandidateWaiter:
    """Waits, on behalf of each task, until its current candidate can be called.

    Args:
        health: of the experts.
        limiter: grants permits for calls.
        catalogue: reports when a dormant expert has started.
    """

    def __init__(self, health: ExpertHealth, limiter: ConcurrencyLimiter, catalogue: CatalogueWatcher) -> None:
        self._health, self._limiter, self._catalogue = health, limiter, catalogue

    async def acquire_address(self, current: CandidateAttempts) -> str:
        """Waits for an address that can be called and for a permit, which is held until release().

        Raises:
            CandidateUnavailable: the candidate cannot be called before the time ends.
            Overloaded: its Retry-After ends after the time that is left.
            DeadlineExceeded: no time is left.
        """
        current.address = ""
        if current.delay is None:
            await self._wait_for_retry_after(current)
        elif not self._health.seconds_left(current.selected):
            await asyncio.sleep(current.delay)
        while True:
            if not current.selected.endpoints:
                await self._wait_for_start(current)
            elif self._health.seconds_left(current.selected):
                await self._wait_for_recovery(current)
            else:
                await self._acquire_permit(current)
                if address := self._health.choose_address(current.selected, current.excluded):
                    return address
                self.release(current)

    def release(self, current: CandidateAttempts) -> None:
        """Returns the permit after a call."""
        self._limiter.release(current.permit)

    async def _wait_for_retry_after(self, current: CandidateAttempts) -> None:
        """Waits until the Retry-After of an earlier refusal ends."""
        if current.attempts.seconds_left <= 0:
            message = f"no time is left for task {current.attempts.task.task_id}"
            raise DeadlineExceeded(message, remedy="give the run more time (budget.wall_time)")
        seconds, refused_until = current.history.seconds_refused(), current.history.refused_until
        if not seconds or refused_until is None:
            return
        expert = current.expert
        if seconds >= min(current.deadline.left, refused_until.left):
            message = f"expert {expert} is overloaded; it accepts calls again in {math.ceil(seconds)} s"
            raise Overloaded(message, remedy="try again later", retry_after=timedelta(seconds=seconds))
        current.attempts.report_waiting(expert, f"{expert} is overloaded; it is called again in {math.ceil(seconds)} s")
        await asyncio.sleep(seconds)

    async def _acquire_permit(self, current: CandidateAttempts) -> None:
        if self._limiter.try_acquire(current.permit):
            return
        expert = current.expert
        reason = f"the limit of concurrent calls of {expert}, or of this run, is reached"
        loop = asyncio.get_running_loop()
        notice = loop.call_later(REPORT_WAIT_AFTER_SECONDS, current.attempts.report_waiting, expert, reason)
        try:
            async with asyncio.timeout(current.deadline.left):
                await self._limiter.acquire(current.permit)
        except TimeoutError:
            message = f"the deadline passed before {expert} could be called"
            raise DeadlineExceeded(message, remedy=MORE_TIME) from None
        finally:
            notice.cancel()

    async def _wait_for_recovery(self, current: CandidateAttempts) -> None:
        """Waits until a circuit changes, or until the next probe of the candidate."""
        seconds, reason = self._health.seconds_to_probe(current), self._health.unavailable_reason(current.selected)
        current.attempts.report_waiting(current.expert, f"{reason}; it is probed until it recovers")
        await self._health.wait_for_change(seconds)
        if self._health.all_addresses_down(current.selected):
            await current.refresh()

    async def _wait_for_start(self, current: CandidateAttempts) -> None:
        """Waits until a dormant expert has an address."""
        candidate, expert, attempts = current.candidate, current.expert, current.attempts
        if not candidate.dormant:
            remedy = "start the expert, or try again later"
            raise CandidateUnavailable(f"expert {expert} has no address", remedy=remedy)
        start = candidate.start_duration.ToTimedelta().total_seconds() or DEFAULT_START_SECONDS
        if start > attempts.seconds_left:
            message = f"expert {expert} is dormant and takes about {start:.0f} s to start, longer than the time left"
            raise _dormant(message, remedy=f"start {expert} first, or {MORE_TIME}")
        start_duration = candidate.start_duration if candidate.HasField("start_duration") else None
        attempts.report_waiting(expert, f"{expert} is dormant; it takes about {start:.0f} s to start", start_duration)
        try:
            async with asyncio.timeout(max(current.deadline.left, min(start, attempts.seconds_left))):
                await self._wait_for_address(current)
        except TimeoutError:
            raise _dormant(
                f"expert {expert} did not start in time", remedy=f"see why {expert} does not start"
            ) from None

    async def _wait_for_address(self, current: CandidateAttempts) -> None:
        with self._catalogue.watched() as changed:
            while not current.selected.endpoints:
                version = changed.version
                await current.refresh()
                if not current.selected.endpoints:
                    await changed.wait(version)


def _dormant(message: str, remedy: str) -> CandidateUnavailable:
    return CandidateUnavailable(message, reason="EXPERT_DORMANT", remedy=remedy)
