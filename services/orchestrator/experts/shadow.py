"""Shadow models: run on the inputs of finished tasks; their results are compared, but not used."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from protos.hugginggpt.internal.v1.selector_pb2 import SelectedCandidate
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import CANDIDATE_ROLE_PRIMARY, CANDIDATE_ROLE_SHADOW, Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common import call_context
from services.orchestrator import metrics
from services.orchestrator.experts.attempts import RetryBudget, TaskRequest

log = structlog.get_logger(__name__)

AT_ONCE = 4
"""Limit of concurrent shadow calls; further ones are skipped and counted."""


class ShadowRunner:
    """Runs shadow candidates at batch priority, behind interactive calls.

    Args:
        infer: calls the candidates of a task.
        at_once: limit of concurrent shadow calls.
    """

    def __init__(self, infer: Callable[[TaskRequest], Awaitable[TaskResult]], at_once: int = AT_ONCE) -> None:
        self._infer = infer
        self._at_once = at_once
        self._calls: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def start(self, task: TaskRequest, result: TaskResult) -> None:
        """Starts the shadows among a task's candidates without waiting for them."""
        for selected in task.candidates:
            if selected.candidate.role == CANDIDATE_ROLE_SHADOW:
                self._start(task, selected, result)

    def _start(self, task: TaskRequest, shadow: SelectedCandidate, result: TaskResult) -> None:
        if len(self._calls) >= self._at_once:
            _count(task, shadow.candidate, result, "skipped")
            return
        call = asyncio.create_task(self._run(task, shadow, result), name="shadow")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _run(self, task: TaskRequest, shadow: SelectedCandidate, result: TaskResult) -> None:
        primary = SelectedCandidate()
        primary.CopyFrom(shadow)
        primary.candidate.role = CANDIDATE_ROLE_PRIMARY
        request = replace(
            task,
            candidates=[primary],
            emit=_ignore,
            retries=RetryBudget(),
            reselect=_no_candidates,
            last_attempt=0,
        )
        with call_context.use_caller(_with_batch_priority(call_context.current())):
            shadow_result = await self._infer(request)
            outcome = _outcome(shadow_result, result.outputs)
            seconds = shadow_result.usage.elapsed.ToNanoseconds() / 1e9
            fields = {"shadow": shadow.candidate.model_id, "outcome": outcome, "seconds": seconds}
            log.info("shadow call ended", task=task.spec.name, model=result.by.model_id, **fields)
        _count(task, shadow.candidate, result, outcome)


def _outcome(shadow_result: TaskResult, outputs: Mapping[str, Value]) -> str:
    if shadow_result.HasField("failure"):
        return "failed"
    return "same" if shadow_result.outputs == outputs else "different"


def _count(task: TaskRequest, shadow: Candidate, result: TaskResult, outcome: str) -> None:
    models = {"model": result.by.model_id, "shadow": shadow.model_id}
    metrics.shadows_tried.add(1, {"task": task.spec.name, **models, "outcome": outcome})


def _with_batch_priority(caller: Caller) -> Caller:
    lowered = Caller()
    lowered.CopyFrom(caller)
    lowered.priority = PRIORITY_BATCH
    return lowered


def _ignore(_: RunEvent) -> None:
    """Drops an event: a shadow's events are not part of the run."""


async def _no_candidates() -> Sequence[SelectedCandidate]:
    """Returns no candidates: a shadow has no fallback."""
    return ()
