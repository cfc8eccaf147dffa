"""Invariants of the fault campaign: right runs pass, and each violation is found."""

from collections.abc import Callable

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.event_pb2 import (
    AnswerChunk,
    PlanCompleted,
    RunAccepted,
    RunEnded,
    RunEvent,
    TaskEnded,
    TaskPlanned,
    TaskStarted,
)
from protos.hugginggpt.v1.run_pb2 import (
    RUN_MODE_RESULTS,
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    TASK_STATE_CANCELLED,
    TASK_STATE_FAILED,
    TASK_STATE_SUCCEEDED,
    Run,
    TaskResult,
    TaskStatus,
)
from tests.chaos import verdict
from tests.chaos.cases import MAX_FALLBACK_FAULTS, MAX_RETRY_FAULTS, Case, Node, cases

CASE = Case(
    number=1,
    seed=1,
    shape="chain",
    word="word",
    nodes=tuple(
        Node(n, "hash", (n - 1,) if n > 1 else (), f"salt {n}", f"1-{n}", (), selector_fails=False) for n in (1, 2)
    ),
    supplied=True,
    stream_breaks=(),
    mode=0,  # type: ignore[arg-type]  # unspecified
    cancels_after=0,
    cancel_on_disconnect=False,
    edited=False,
)
Events = list[RunEvent]


def ended(task_id: int, text: str | None = None) -> RunEvent:
    result = TaskResult(task_id=task_id, attempt=1, outputs={"text": Value(text=text or CASE.outputs[task_id])})
    return RunEvent(task_id=task_id, attempt=1, task_ended=TaskEnded(state=TASK_STATE_SUCCEEDED, result=result))


def good() -> Events:
    return numbered(
        [
            RunEvent(run_accepted=RunAccepted()),
            *(RunEvent(task_id=n, task_planned=TaskPlanned()) for n in (1, 2)),
            RunEvent(plan_completed=PlanCompleted()),
            RunEvent(task_id=1, attempt=1, task_started=TaskStarted()),
            ended(1),
            RunEvent(task_id=2, attempt=1, task_started=TaskStarted()),
            ended(2),
            RunEvent(answer_chunk=AnswerChunk(text=CASE.answer)),
            RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)),
        ]
    )


def numbered(events: Events) -> Events:
    for number, event in enumerate(events, start=1):
        event.run_id, event.sequence = "run_1", number
    return events


def violations(events: Events, *, may_be_cancelled: bool = False) -> str:
    return "; ".join(verdict.violations(CASE, events, may_be_cancelled=may_be_cancelled))


def test_right_run_has_no_violations() -> None:
    assert violations(good()) == ""
    assert list(verdict.disagreements(good(), good())) == []


def remove_event(events: Events) -> None:
    del events[4]


def repeat_event(events: Events) -> None:
    events.insert(5, events[4])


def change_run_id(events: Events) -> None:
    events[3].run_id = "run_2"


def restart_ended_task(events: Events) -> None:
    events.insert(6, RunEvent(task_id=1, attempt=2, task_started=TaskStarted()))


def end_task_twice(events: Events) -> None:
    events.insert(6, ended(1))


def plan_task_twice(events: Events) -> None:
    events.insert(4, RunEvent(task_id=1, task_planned=TaskPlanned()))


def start_attempt_twice(events: Events) -> None:
    events.insert(5, RunEvent(task_id=1, attempt=1, task_started=TaskStarted()))


def omit_task_end(events: Events) -> None:
    del events[7]


def change_result(events: Events) -> None:
    events[5].task_ended.result.outputs["text"].text = "something else"


def fail_task(events: Events) -> None:
    events[5].task_ended.state = TASK_STATE_FAILED


def add_task(events: Events) -> None:
    events.insert(3, RunEvent(task_id=3, task_planned=TaskPlanned()))
    events.insert(4, ended(3, "more"))


def fail_run(events: Events) -> None:
    events[-1].run_ended.state = RUN_STATE_FAILED


def cancel_run(events: Events) -> None:
    events[-1].run_ended.state = RUN_STATE_CANCELLED


def end_run_twice(events: Events) -> None:
    events.append(RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)))


def accept_run_twice(events: Events) -> None:
    events.insert(1, RunEvent(run_accepted=RunAccepted()))


def complete_plan_twice(events: Events) -> None:
    events.insert(4, RunEvent(plan_completed=PlanCompleted()))


def extend_answer(events: Events) -> None:
    events.insert(8, RunEvent(answer_chunk=AnswerChunk(text="Task")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (restart_ended_task, "had ended before event 7, task_started"),
        (end_task_twice, "had ended before event 7, task_ended"),
        (plan_task_twice, "planned twice"),
        (start_attempt_twice, "attempt 1 of task 1 started twice"),
        (omit_task_end, "tasks [2] did not end"),
        (change_result, "gave text"),
        (fail_task, "ended TASK_STATE_FAILED"),
        (add_task, "tasks [3] are missing or unexpected"),
        (fail_run, "it ended RUN_STATE_FAILED"),
        (cancel_run, "it ended RUN_STATE_CANCELLED"),
        (end_run_twice, "run_ended is not its last event, or occurs twice"),
        (accept_run_twice, "run_accepted is not its first event, or occurs twice"),
        (complete_plan_twice, "plan_completed occurs twice"),
        (extend_answer, "its answer is"),
    ],
)
def test_violation_is_found(change: Callable[[Events], None], message: str) -> None:
    events = good()
    change(events)
    assert message in violations(numbered(events))


@pytest.mark.parametrize(
    ("change", "message"),
    [(remove_event, "not numbered"), (repeat_event, "not numbered"), (change_run_id, "belong to several runs")],
)
def test_missing_repeated_and_foreign_events_are_found(change: Callable[[Events], None], message: str) -> None:
    events = good()
    change(events)
    assert message in violations(events)


def test_cancelled_run_may_lack_results_but_not_have_wrong_ones() -> None:
    events = good()
    cancel_run(events)
    events[7].task_ended.state = TASK_STATE_CANCELLED
    events[7].task_ended.result.ClearField("outputs")
    del events[8]
    assert violations(numbered(events), may_be_cancelled=True) == ""
    change_result(events)
    assert "gave text" in violations(events, may_be_cancelled=True)


def test_differences_between_clients_are_found() -> None:
    other = good()
    other[4].attempt = 2
    assert "different events 5" in "".join(verdict.disagreements(good(), other))
    assert "10 events, another 9" in "".join(verdict.disagreements(good(), good()[:-1]))


@pytest.fixture
def stored() -> Run:
    """The run of `good()` as the journal stores it."""
    run = Run(state=RUN_STATE_COMPLETED, last_sequence=10, answer=CASE.answer)
    run.tasks.extend(TaskStatus(task=node.task(), result=ended(node.id).task_ended.result) for node in CASE.nodes)
    return run


def test_matching_journal_has_no_differences(stored: Run) -> None:
    assert list(verdict.journal_differences(good(), stored, stored)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda run: setattr(run, "state", RUN_STATE_FAILED),
        lambda run: setattr(run, "last_sequence", 9),
        lambda run: setattr(run, "answer", "another"),
        lambda run: run.tasks[0].result.outputs["text"].MergeFrom(Value(text="another")),
    ],
    ids=["state", "last_sequence", "answer", "result"],
)
def test_differences_of_the_journal_are_found(stored: Run, change: Callable[[Run], object]) -> None:
    changed = Run()
    changed.CopyFrom(stored)
    change(changed)
    assert list(verdict.journal_differences(good(), stored, changed))


def test_equal_seeds_give_equal_cases() -> None:
    some = cases(5, 200)
    assert some == cases(5, 300)[:200]
    assert some != cases(6, 200)


def test_faults_of_a_task_are_limited() -> None:
    some = cases(5, 200)
    assert max(len(node.faults) for case in some for node in case.nodes) <= MAX_RETRY_FAULTS + MAX_FALLBACK_FAULTS


def test_some_cases_have_no_answer() -> None:
    assert any(case.mode == RUN_MODE_RESULTS and not case.answer for case in cases(5, 200))
