"""What a run has spent, read off its events."""

import asyncio
from datetime import timedelta

from protos.hugginggpt.v1 import types_pb2 as types
from protos.hugginggpt.v1.types_pb2 import Budget, Failure, RunEvent
from services.orchestrator.runs.budget import Spending


class Run:
    """Events of a run whose clock the test sets, in seconds."""

    def __init__(self, budget: Budget, *before: RunEvent) -> None:
        self.told: list[Failure] = []
        self.late = asyncio.Event()
        self._now = 0.0
        self.spending = Spending(budget, before, self._spent, lambda: self._now)

    def saw(self, event: RunEvent) -> None:
        """An event at its time."""
        self._now = event.time.ToNanoseconds() / 1e9
        self.spending.saw(event)

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


def took(busy: float) -> types.TaskEnded:
    ended = types.TaskEnded()
    ended.result.usage.busy.FromTimedelta(timedelta(seconds=busy))
    return ended


async def test_tokens_of_decisions_and_results_add_up() -> None:
    decision = types.Decision(usage=types.Usage(input_tokens=30, output_tokens=10))
    run = Run(Budget(llm_tokens=100))
    run.saw(at(0, plan_completed=types.PlanCompleted(decision=decision)))
    run.saw(at(0, task_selected=types.TaskSelected(decision=decision)))
    assert not run.told
    result = types.TaskResult(usage=types.Usage(output_tokens=20))
    run.saw(at(0, task_ended=types.TaskEnded(result=result)))
    assert [failure.reason for failure in run.told] == ["BUDGET"]


async def test_what_an_earlier_owner_spent_counts() -> None:
    run = Run(seconds(10), at(0, task_started=types.TaskStarted()), at(9, task_ended=took(8)))
    run.saw(at(20, task_started=types.TaskStarted()))
    run.saw(at(23, task_ended=took(3)))
    assert [failure.reason for failure in run.told] == ["BUDGET"]


async def test_a_failed_attempt_counts_by_the_time_it_took() -> None:
    run = Run(seconds(10))
    run.saw(at(0, task_started=types.TaskStarted()))
    run.saw(at(10, attempt_failed=types.AttemptFailed()))
    assert len(run.told) == 1


async def test_a_call_under_way_is_stopped_when_the_time_is_over() -> None:
    run = Run(seconds(0.01))
    async with asyncio.timeout(5):
        run.saw(at(0, task_started=types.TaskStarted()))
        assert not run.told
        await run.late.wait()


async def test_nothing_is_told_of_a_run_that_has_ended() -> None:
    run = Run(seconds(0.01))
    run.saw(at(0, task_started=types.TaskStarted()))
    run.saw(at(0, run_ended=types.RunEnded()))
    assert run.spending._alarm is None


async def test_no_budget_is_never_spent() -> None:
    run = Run(Budget())
    usage = types.Usage(input_tokens=10**9)
    run.saw(at(0, task_ended=types.TaskEnded(result=types.TaskResult(usage=usage))))
    assert not run.told
