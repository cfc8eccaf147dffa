"""Asking experts: the candidates of a task in their order, until one answers."""

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Self

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common.errors import RecoveryAction, ServiceError
from services.orchestrator import metrics
from services.orchestrator.experts.backoff import RetryBudget
from services.orchestrator.experts.candidates import Asking, Job, Lineup, OutOfReach, to_failure
from services.orchestrator.experts.dormant import Sleepers
from services.orchestrator.experts.infer_call import Calls
from services.orchestrator.experts.limiter import Turns
from services.orchestrator.experts.retry import Means, Trying
from services.orchestrator.experts.shadow import Shadows
from services.orchestrator.pricing import Prices

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

__all__ = ["Attempts", "Job", "to_failure"]


class Attempts:
    """Experts, and what is known of them from having asked.

    Args:
        selector: tells of changes in the catalogue.
        attempt_seconds: time one call has, if the run has that much left.
        overload_seconds: how long a task calls an expert again that refuses calls as overloaded.
        calls_at_once: most calls under way, of all.
        calls_per_expert: most calls under way of one expert.
        calls_per_run: most calls under way of one run.
        prices: what calls cost.
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
        self._calls = Calls(attempt_seconds, prices)
        self._sleepers = Sleepers(selector)
        turns = Turns(at_once=calls_at_once, per_expert=calls_per_expert, per_run=calls_per_run)
        self._means = Means(self._calls, turns, self._sleepers, attempt_seconds, overload_seconds)
        self._retries: defaultdict[str, RetryBudget] = defaultdict(RetryBudget)
        self._shadows = Shadows(self.infer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shadows.close()
        self._sleepers.close()
        await self._calls.close()

    def avoid(self) -> list[Avoid]:
        """What has been failing, for the selector to rank last."""
        return self._calls.circuits.avoid()

    async def infer(self, job: Job) -> TaskResult:
        """Asks the candidates in order until one answers; gives the outputs, or the failure of the last attempt."""
        await self._calls.forget()
        asking = Asking(job)
        lineup = Lineup(asking, self._seconds_left)
        candidate = await lineup.next()
        if candidate is None:
            return asking.ended(lineup.nobody())
        while True:
            try:
                return await self._ask(asking, candidate, lineup)
            except ServiceError as error:
                following = await lineup.next(error) if asking.left > 0 else None
                if following is None:
                    return asking.ended(error, candidate)
                asking.failed(error, candidate, RecoveryAction.NEXT_CANDIDATE)
                candidate = following

    def follow(self, job: Job, result: TaskResult) -> None:
        """Has the shadows of a job that has succeeded do it, too; nobody waits for them."""
        self._shadows.follow(job, result)

    def _seconds_left(self, candidate: Candidate) -> float:
        return self._calls.seconds_left(candidate) if candidate.endpoints else math.inf

    async def _ask(self, asking: Asking, candidate: Candidate, lineup: Lineup) -> TaskResult:
        attempt, label, retries = asking.attempt, {"expert": candidate.expert}, self._retries[candidate.expert]
        metrics.expert_queue_depth.add(1, label)
        try:
            trying = Trying(
                self._means,
                asking,
                candidate,
                retries,
                last=lineup.at_end,
                patient=lineup.patient,
                has_alternative=lineup.has_alternative,
            )
            return await trying.result()
        except OutOfReach:
            if asking.attempt == attempt:
                asking.passed_over()
            raise
        finally:
            metrics.expert_queue_depth.add(-1, label)
