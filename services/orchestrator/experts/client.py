"""Client of all experts: calls the candidates of a task in order until one succeeds."""

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Self

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid, SelectedCandidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common.errors import RecoveryAction, ServiceError
from services.orchestrator import metrics
from services.orchestrator.experts.backoff import RetryBudget
from services.orchestrator.experts.candidates import (
    AttemptReporter,
    CandidateQueue,
    CandidateUnavailable,
    TaskRequest,
    to_failure,
)
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.infer_call import InferCaller
from services.orchestrator.experts.limiter import ConcurrencyLimiter
from services.orchestrator.experts.retry import CallDependencies, RetryingCall
from services.orchestrator.experts.shadow import ShadowRunner
from services.orchestrator.pricing import Prices

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

__all__ = ["ExpertClient", "TaskRequest", "to_failure"]


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
        self._calls = InferCaller(attempt_seconds, prices)
        self._catalogue = CatalogueWatcher(selector)
        limiter = ConcurrencyLimiter(at_once=calls_at_once, per_expert=calls_per_expert, per_run=calls_per_run)
        self._dependencies = CallDependencies(self._calls, limiter, self._catalogue, attempt_seconds, overload_seconds)
        self._retries: defaultdict[str, RetryBudget] = defaultdict(RetryBudget)
        self._shadows = ShadowRunner(self.infer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shadows.close()
        self._catalogue.close()
        await self._calls.close()

    def avoid(self) -> list[Avoid]:
        """Experts, addresses and models with open circuits, for the selector to rank last."""
        return self._calls.circuits.avoid()

    async def infer(self, task: TaskRequest) -> TaskResult:
        """Calls the candidates in order until one succeeds; returns its outputs, or the failure of the last attempt."""
        await self._calls.forget_unused()
        reporter = AttemptReporter(task)
        queue = CandidateQueue(reporter, self._seconds_left)
        selected = await queue.next()
        if selected is None:
            return reporter.failed_result(queue.no_candidate_error())
        while True:
            try:
                return await self._call(reporter, selected, queue)
            except ServiceError as error:
                following = await queue.next(error) if reporter.left > 0 else None
                if following is None:
                    return reporter.failed_result(error, selected.candidate)
                reporter.attempt_failed(error, selected.candidate, RecoveryAction.NEXT_CANDIDATE)
                selected = following

    def run_shadows(self, task: TaskRequest, result: TaskResult) -> None:
        """Starts the shadow candidates of a task that has succeeded, in the background."""
        self._shadows.start(task, result)

    def _seconds_left(self, selected: SelectedCandidate) -> float:
        return self._calls.seconds_left(selected) if selected.endpoints else math.inf

    async def _call(self, reporter: AttemptReporter, selected: SelectedCandidate, queue: CandidateQueue) -> TaskResult:
        expert = selected.candidate.expert
        attempt, label, retries = reporter.attempt, {"expert": expert}, self._retries[expert]
        metrics.expert_queue_depth.add(1, label)
        try:
            call = RetryingCall(
                self._dependencies,
                reporter,
                selected,
                retries,
                is_last=queue.is_last,
                may_wait=queue.may_wait,
                has_alternative=queue.has_alternative,
            )
            return await call.result()
        except CandidateUnavailable:
            if reporter.attempt == attempt:
                reporter.count_unavailable()
            raise
        finally:
            metrics.expert_queue_depth.add(-1, label)
