"""Tracks what a run has used of its budget, from its events."""

import asyncio
import time
from collections.abc import Callable, Iterable

from google.rpc import code_pb2

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.usage_pb2 import Budget, Usage

_REMEDY = "send a smaller request, or raise the budget"


class BudgetTracker:
    """Reports once that a budget is exhausted; without a limit it does nothing.

    Args:
        budget: of LLM tokens and expert time; limits of tasks and wall time are enforced elsewhere.
        events: earlier events of the run.
        on_exhausted: called with the failure that names the limit.
        clock: monotonic seconds; earlier events are measured by their own times.
    """

    def __init__(
        self,
        budget: Budget,
        events: Iterable[RunEvent],
        on_exhausted: Callable[[Failure], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens_left = budget.llm_tokens
        self._seconds_left = budget.expert_time.ToNanoseconds() / 1e9
        self._counts_tokens = budget.llm_tokens > 0
        self._counts_seconds = self._seconds_left > 0
        self._on_exhausted = on_exhausted
        self._clock = clock
        self._started: dict[int, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        for event in events:
            self._count(event, event.time.ToNanoseconds() / 1e9)
        self._started.clear()  # their orchestrator is gone, and their usage with it

    def add(self, event: RunEvent) -> None:
        """Counts the next event."""
        if self._counts_tokens or self._counts_seconds:
            now = self._clock()
            self._count(event, now)
            self._check(event, now)

    def _count(self, event: RunEvent, now: float) -> None:
        match event.WhichOneof("event"):
            case "task_started":
                self._started[event.task_id] = now
            case "attempt_failed":
                self._seconds_left -= now - self._started.pop(event.task_id, now)
            case "task_ended":
                usage = event.task_ended.result.usage
                self._use(usage)
                elapsed = now - self._started.pop(event.task_id, now)
                self._seconds_left -= usage.busy.ToNanoseconds() / 1e9 if usage.HasField("busy") else elapsed
            case "plan_completed":
                self._use(event.plan_completed.decision.usage)
            case "task_selected":
                self._use(event.task_selected.decision.usage)
            case "answer_chunk":
                self._use(event.answer_chunk.decision.usage)

    def _use(self, usage: Usage) -> None:
        self._tokens_left -= usage.input_tokens + usage.output_tokens

    def _check(self, event: RunEvent, now: float) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if event.HasField("run_ended"):
            return
        if self._counts_tokens and self._tokens_left <= 0:
            self._on_exhausted(_failure("the run has used all LLM tokens of its budget"))
        if self._counts_seconds and self._started:
            running = sum(now - since for since in self._started.values())
            delay = max(0.0, (self._seconds_left - running) / len(self._started))
            self._alarm = asyncio.get_running_loop().call_later(delay, self._report_time)
        elif self._counts_seconds and self._seconds_left <= 0:
            self._report_time()

    def _report_time(self) -> None:
        self._on_exhausted(_failure("the run has used all expert time of its budget"))


def _failure(message: str) -> Failure:
    return Failure(reason="BUDGET", code=code_pb2.RESOURCE_EXHAUSTED, message=message, remedy=_REMEDY)
