"""Budget of a run, counted from its events."""

import asyncio
from datetime import timedelta

from protos.hugginggpt.v1 import event_pb2, plan_pb2, run_pb2, usage_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.usage_pb2 import Budget
from services.orchestrator.runs.budget import BudgetTracker


class Run:
    """Events of a run whose clock the test sets, in seconds."""

    def __init__(self, budget: Budget, *before: RunEvent) -> None:
        self.failures: list[Failure] = []
        self.exhausted = asyncio.Event()
        self._now = 0.0
        self.tracker = BudgetTracker(budget, before, self._report, lambda: self._now)

    def add(self, event: RunEvent) -> None:
        """Counts an event at its time."""
        self._now = event.time.ToNanoseconds() / 1e9
        self.tracker.add(event)

    def _report(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.exhausted.set()


def at(seconds: float, **event: object) -> RunEvent:
    result = RunEvent(task_id=1, **event)  # type: ignore[arg-type]
    result.time.FromNanoseconds(int(seconds * 1e9))
    return result


def seconds(number: float) -> Budget:
    budget = Budget()
    budget.expert_time.FromTimedelta(timedelta(seconds=number))
    return budget


def ended_after(busy: float) -> event_pb2.TaskEnded:
    ended = event_pb2.TaskEnded()
    ended.result.usage.busy.FromTimedelta(timedelta(seconds=busy))
    return ended


async def test_tokens_of_decisions_and_results_are_added() -> None:
    decision = plan_pb2.Decision(usage=usage_pb2.Usage(input_tokens=30, output_tokens=10))
    run = Run(Budget(llm_tokens=100))
    run.add(at(0, plan_completed=event_pb2.PlanCompleted(decision=decision)))
    run.add(at(0, task_selected=event_pb2.TaskSelected(decision=decision)))
    assert not run.failures
    result = run_pb2.TaskResult(usage=usage_pb2.Usage(output_tokens=20))
    run.add(at(0, task_ended=event_pb2.TaskEnded(result=result)))
    assert [failure.reason for failure in run.failures] == ["BUDGET"]


async def test_usage_under_an_earlier_owner_counts() -> None:
    run = Run(seconds(10), at(0, task_started=event_pb2.TaskStarted()), at(9, task_ended=ended_after(8)))
    run.add(at(20, task_started=event_pb2.TaskStarted()))
    run.add(at(23, task_ended=ended_after(3)))
    assert [failure.reason for failure in run.failures] == ["BUDGET"]


async def test_failed_attempt_counts_with_its_duration() -> None:
    run = Run(seconds(10))
    run.add(at(0, task_started=event_pb2.TaskStarted()))
    run.add(at(10, attempt_failed=event_pb2.AttemptFailed()))
    assert len(run.failures) == 1


async def test_exhaustion_is_reported_while_a_call_is_active() -> None:
    run = Run(seconds(0.01))
    async with asyncio.timeout(5):
        run.add(at(0, task_started=event_pb2.TaskStarted()))
        assert not run.failures
        await run.exhausted.wait()


async def test_exhaustion_is_not_reported_after_the_end_of_the_run() -> None:
    run = Run(seconds(0.01))
    run.add(at(0, task_started=event_pb2.TaskStarted()))
    run.add(at(0, run_ended=event_pb2.RunEnded()))
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, later.set)  # after the time at which exhaustion would be reported
    await later.wait()
    assert not run.failures


async def test_run_without_budget_is_never_exhausted() -> None:
    run = Run(Budget())
    usage = usage_pb2.Usage(input_tokens=10**9)
    run.add(at(0, task_ended=event_pb2.TaskEnded(result=run_pb2.TaskResult(usage=usage))))
    assert not run.failures
