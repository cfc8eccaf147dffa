"""Client of all experts: calls the candidates of a task until one succeeds."""

import time
from typing import TYPE_CHECKING, Self

from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common.errors import RecoveryAction, ServiceError
from services.orchestrator import metrics
from services.orchestrator.experts.attempts import TaskAttempts, TaskRequest
from services.orchestrator.experts.candidate_waiter import CandidateWaiter
from services.orchestrator.experts.candidates import CandidateAttempts, CandidateQueue, CandidateUnavailable
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.health import ExpertHealth
from services.orchestrator.experts.infer_call import InferCaller
from services.orchestrator.experts.limiter import ConcurrencyLimiter
from services.orchestrator.experts.retry import RetryPolicy
from services.orchestrator.experts.shadow import ShadowRunner
from services.orchestrator.pricing import Prices

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

FORGET_EVERY_SECONDS = 60.0


class ExpertClient:
    """Calls experts, with limits, retries, circuit breakers and load balancing shared by all runs of this process.

    Args:
        selector: streams changes of the catalogue.
        attempt_seconds: timeout of one call, if the run has that much time left.
        overload_seconds: how long a task retries an expert that refuses calls as overloaded.
        calls_at_once: limit of concurrent calls.
        calls_per_expert: limit of concurrent calls of one expert.
        calls_per_run: limit of concurrent calls of one run.
        prices: price table.
    """

    def __init__(
        self,
        selector: "SelectorServiceAsyncStub",
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
        self._catalogue = CatalogueWatcher(selector)
        limiter = ConcurrencyLimiter(at_once=calls_at_once, per_expert=calls_per_expert, per_run=calls_per_run)
        self._waiter = CandidateWaiter(self.health, limiter, self._catalogue)
        self._calls = InferCaller(self.health, attempt_seconds, prices)
        self._retry_policy = RetryPolicy(self.health, overload_seconds)
        self._shadows = ShadowRunner(self.infer)
        self._forget_at = time.monotonic() + FORGET_EVERY_SECONDS

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shadows.close()
        self._catalogue.close()
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
        label = {"expert": current.expert}
        metrics.expert_queue_depth.add(1, label)
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
            metrics.expert_queue_depth.add(-1, label)

    async def _forget_unused(self) -> None:
        """Drops channels, load and circuits of addresses that are no longer used, at most once a minute."""
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_EVERY_SECONDS
            await self._calls.close_unused(self.health.forget_unused())
