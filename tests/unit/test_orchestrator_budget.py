"""What a run has spent, read off its events."""

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
        self.told: list[Failure] = []
        self.late = asyncio.Event()
        self._now = 0.0
        self.spending = BudgetTracker(budget, before, self._spent, lambda: self._now)

    def saw(self, event: RunEvent) -> None:
        """An event at its time."""
        self._now = event.time.ToNanoseconds() / 1e9
        self.spending.add(event)

    def _spent(self, failure: Failure) -> None:
        self.told.append(failure)
        self.late.set()


def at(seconds: float, **event: object) -> RunEvent:
    made = RunEvent(task_id=1, **event)  # type: ignore[arg-type]
    made.time.FromNanoseconds(int(seconds * 1e9))
    return made


def seconds(number: float) -> Budget:
    budget = Budget()
    budget.expert_time.FromTimedelta(timedelta(seconds=number))
    return budget


def took(busy: float) -> event_pb2.TaskEnded:
    ended = event_pb2.TaskEnded()
    ended.result.usage.busy.FromTimedelta(timedelta(seconds=busy))
    return ended


async def test_tokens_of_decisions_and_results_add_up() -> None:
    decision = plan_pb2.Decision(usage=usage_pb2.Usage(input_tokens=30, output_tokens=10))
    run = Run(Budget(llm_tokens=100))
    run.saw(at(0, plan_completed=event_pb2.PlanCompleted(decision=decision)))
    run.saw(at(0, task_selected=event_pb2.TaskSelected(decision=decision)))
    assert not run.told
    result = run_pb2.TaskResult(usage=usage_pb2.Usage(output_tokens=20))
    run.saw(at(0, task_ended=event_pb2.TaskEnded(result=result)))
    assert [failure.reason for failure in run.told] == ["BUDGET"]


async def test_what_an_earlier_owner_spent_counts() -> None:
    run = Run(seconds(10), at(0, task_started=event_pb2.TaskStarted()), at(9, task_ended=took(8)))
    run.saw(at(20, task_started=event_pb2.TaskStarted()))
    run.saw(at(23, task_ended=took(3)))
    assert [failure.reason for failure in run.told] == ["BUDGET"]


async def test_a_failed_attempt_counts_by_the_time_it_took() -> None:
    run = Run(seconds(10))
    run.saw(at(0, task_started=event_pb2.TaskStarted()))
    run.saw(at(10, attempt_failed=event_pb2.AttemptFailed()))
    assert len(run.told) == 1


async def test_a_call_under_way_is_stopped_when_the_time_is_over() -> None:
    run = Run(seconds(0.01))
    async with asyncio.timeout(5):
        run.saw(at(0, task_started=event_pb2.TaskStarted()))
        assert not run.told
        await run.late.wait()


async def test_nothing_is_told_of_a_run_that_has_ended() -> None:
    run = Run(seconds(0.01))
    run.saw(at(0, task_started=event_pb2.TaskStarted()))
    run.saw(at(0, run_ended=event_pb2.RunEnded()))
    assert run.spending._alarm is None


async def test_no_budget_is_never_spent() -> None:
    run = Run(Budget())
    usage = usage_pb2.Usage(input_tokens=10**9)
    run.saw(at(0, task_ended=event_pb2.TaskEnded(result=run_pb2.TaskResult(usage=usage))))
    assert not run.told
