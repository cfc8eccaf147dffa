"""What a run has spent of its budget, read off its events as they come."""

import asyncio
import time
from collections.abc import Callable, Iterable

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.usage_pb2 import Budget, Usage

_REMEDY = "ask for less at once, or give the run more (budget)"


class Spending:
    """Tells once when a budget is spent; a budget that names no limit costs nothing.

    Args:
        budget: of tokens and of the experts' time; what it says of tasks and wall time is for others.
        events: what has happened before.
        spent: told which limit was reached.
        clock: seconds that only grow; what happened before is measured by the times of its events instead.
    """

    def __init__(
        self,
        budget: Budget,
        events: Iterable[RunEvent],
        spent: Callable[[Failure], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens_left = budget.llm_tokens
        self._seconds_left = budget.expert_time.ToNanoseconds() / 1e9
        self._counts_tokens = budget.llm_tokens > 0
        self._counts_seconds = self._seconds_left > 0
        self._spent = spent
        self._clock = clock
        self._begun: dict[int, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        for event in events:
            self._count(event, event.time.ToNanoseconds() / 1e9)
        self._begun.clear()  # who began them is gone, and what they cost with him

    def saw(self, event: RunEvent) -> None:
        """Takes the next event."""
        if self._counts_tokens or self._counts_seconds:
            now = self._clock()
            self._count(event, now)
            self._judge(event, now)

    def _count(self, event: RunEvent, now: float) -> None:
        match event.WhichOneof("event"):
            case "task_started":
                self._begun[event.task_id] = now
            case "attempt_failed":
                self._seconds_left -= now - self._begun.pop(event.task_id, now)
            case "task_ended":
                usage = event.task_ended.result.usage
                self._use(usage)
                took = now - self._begun.pop(event.task_id, now)
                self._seconds_left -= usage.busy.ToNanoseconds() / 1e9 if usage.HasField("busy") else took
            case "plan_completed":
                self._use(event.plan_completed.decision.usage)
            case "task_selected":
                self._use(event.task_selected.decision.usage)
            case "answer_chunk":
                self._use(event.answer_chunk.decision.usage)

    def _use(self, usage: Usage) -> None:
        self._tokens_left -= usage.input_tokens + usage.output_tokens

    def _judge(self, event: RunEvent, now: float) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if event.HasField("run_ended"):
            return
        if self._counts_tokens and self._tokens_left <= 0:
            self._spent(_failure("the LLM tokens this run may use are spent"))
        if self._counts_seconds and self._begun:
            begun = sum(now - since for since in self._begun.values())
            delay = max(0.0, (self._seconds_left - begun) / len(self._begun))
            self._alarm = asyncio.get_running_loop().call_later(delay, self._late)
        elif self._counts_seconds and self._seconds_left <= 0:
            self._late()

    def _late(self) -> None:
        self._spent(_failure("the experts' time this run may use is spent"))


def _failure(message: str) -> Failure:
    return Failure(reason="BUDGET", code="RESOURCE_EXHAUSTED", message=message, remedy=_REMEDY)
