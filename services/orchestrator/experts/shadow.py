"""Models on trial: each is given what another has done, and its results are compared but not used."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import CANDIDATE_ROLE_PRIMARY, CANDIDATE_ROLE_SHADOW, Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common import call_context
from services.orchestrator import metrics
from services.orchestrator.experts.backoff import RetryBudget
from services.orchestrator.experts.candidates import Job

log = structlog.get_logger(__name__)

AT_ONCE = 4
"""Trials under way; what comes beyond them is left out, and counted."""


class Shadows:
    """Gives shadows what was done, after all that people and batches wait for.

    Args:
        infer: asks the candidates of a job.
        at_once: most trials under way.
    """

    def __init__(self, infer: Callable[[Job], Awaitable[TaskResult]], at_once: int = AT_ONCE) -> None:
        self._infer = infer
        self._at_once = at_once
        self._trials: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for trial in self._trials:
            trial.cancel()
        await asyncio.gather(*self._trials, return_exceptions=True)

    def follow(self, job: Job, result: TaskResult) -> None:
        """Has the shadows among a job's candidates do it, too; does not wait for them."""
        for candidate in job.candidates:
            if candidate.role == CANDIDATE_ROLE_SHADOW:
                self._begin(job, candidate, result)

    def _begin(self, job: Job, shadow: Candidate, result: TaskResult) -> None:
        if len(self._trials) >= self._at_once:
            _count(job, shadow, result, "left out")
            return
        trial = asyncio.create_task(self._try(job, shadow, result), name="shadow")
        self._trials.add(trial)
        trial.add_done_callback(self._trials.discard)

    async def _try(self, job: Job, shadow: Candidate, result: TaskResult) -> None:
        alone = Candidate()
        alone.CopyFrom(shadow)
        alone.role = CANDIDATE_ROLE_PRIMARY
        with call_context.use_caller(_behind_all(call_context.current())):
            tried = await self._infer(
                replace(job, candidates=[alone], emit=_untold, retries=RetryBudget(), again=_nobody, last_attempt=0)
            )
            outcome = _outcome(tried, result.outputs)
            seconds = tried.usage.elapsed.ToNanoseconds() / 1e9
            told = {"shadow": shadow.model_id, "outcome": outcome, "seconds": seconds}
            log.info("a shadow was tried", task=job.spec.name, model=result.by.model_id, **told)
        _count(job, shadow, result, outcome)


def _outcome(tried: TaskResult, outputs: Mapping[str, Value]) -> str:
    if tried.HasField("failure"):
        return "failed"
    return "same" if tried.outputs == outputs else "different"


def _count(job: Job, shadow: Candidate, result: TaskResult, outcome: str) -> None:
    models = {"model": result.by.model_id, "shadow": shadow.model_id}
    metrics.shadows_tried.add(1, {"task": job.spec.name, **models, "outcome": outcome})


def _behind_all(who: Caller) -> Caller:
    lowered = Caller()
    lowered.CopyFrom(who)
    lowered.priority = PRIORITY_BATCH
    return lowered


def _untold(_: RunEvent) -> None:
    """The run does not hear of it."""


async def _nobody() -> Sequence[Candidate]:
    """Nobody stands in for a shadow."""
    return ()
