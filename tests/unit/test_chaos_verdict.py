"""The campaign's judge: it passes what is right, and finds each thing that may not be."""

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
from tests.chaos.cases import MOST_AGAIN, MOST_ELSEWHERE, Case, Node, cases

CASE = Case(
    number=1,
    seed=1,
    shape="chain",
    word="word",
    nodes=tuple(Node(n, "weave", (n - 1,) if n > 1 else (), f"salt {n}", f"1-{n}", (), shy=False) for n in (1, 2)),
    supplied=True,
    breaks=(),
    mode=0,  # type: ignore[arg-type]  # unspecified
    cancels_after=0,
    leaves_with_client=False,
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


def judged(events: Events, *, may_be_cancelled: bool = False) -> str:
    return "; ".join(verdict.complaints(CASE, events, may_be_cancelled=may_be_cancelled))


def test_what_is_right_passes() -> None:
    assert judged(good()) == ""
    assert list(verdict.disagreements(good(), good())) == []


def without_the_fifth(events: Events) -> None:
    del events[4]


def with_one_twice(events: Events) -> None:
    events.insert(5, events[4])


def of_another_run(events: Events) -> None:
    events[3].run_id = "run_2"


def begun_again(events: Events) -> None:
    events.insert(6, RunEvent(task_id=1, attempt=2, task_started=TaskStarted()))


def ended_again(events: Events) -> None:
    events.insert(6, ended(1))


def planned_again(events: Events) -> None:
    events.insert(4, RunEvent(task_id=1, task_planned=TaskPlanned()))


def the_same_attempt_again(events: Events) -> None:
    events.insert(5, RunEvent(task_id=1, attempt=1, task_started=TaskStarted()))


def never_ended(events: Events) -> None:
    del events[7]


def wrong_text(events: Events) -> None:
    events[5].task_ended.result.outputs["text"].text = "something else"


def a_task_failed(events: Events) -> None:
    events[5].task_ended.state = TASK_STATE_FAILED


def a_task_too_many(events: Events) -> None:
    events.insert(3, RunEvent(task_id=3, task_planned=TaskPlanned()))
    events.insert(4, ended(3, "more"))


def the_run_failed(events: Events) -> None:
    events[-1].run_ended.state = RUN_STATE_FAILED


def the_run_was_cancelled(events: Events) -> None:
    events[-1].run_ended.state = RUN_STATE_CANCELLED


def ended_twice(events: Events) -> None:
    events.append(RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)))


def accepted_twice(events: Events) -> None:
    events.insert(1, RunEvent(run_accepted=RunAccepted()))


def plan_completed_twice(events: Events) -> None:
    events.insert(4, RunEvent(plan_completed=PlanCompleted()))


def words_twice(events: Events) -> None:
    events.insert(8, RunEvent(answer_chunk=AnswerChunk(text="Task")))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (begun_again, "had ended when event 7, task_started"),
        (ended_again, "had ended when event 7, task_ended"),
        (planned_again, "planned twice"),
        (the_same_attempt_again, "attempt 1 of task 1 began twice"),
        (never_ended, "tasks [2] never ended"),
        (wrong_text, "gave text"),
        (a_task_failed, "ended TASK_STATE_FAILED"),
        (a_task_too_many, "tasks [3] are missing or too many"),
        (the_run_failed, "it ended RUN_STATE_FAILED"),
        (the_run_was_cancelled, "it ended RUN_STATE_CANCELLED"),
        (ended_twice, "did not end once"),
        (accepted_twice, "not accepted once"),
        (plan_completed_twice, "completed twice"),
        (words_twice, "its answer is"),
    ],
)
def test_what_is_wrong_is_found(spoil: Callable[[Events], None], says: str) -> None:
    events = good()
    spoil(events)
    assert says in judged(numbered(events))


@pytest.mark.parametrize("spoil", [without_the_fifth, with_one_twice, of_another_run])
def test_gaps_repeats_and_strangers_among_the_events_are_found(spoil: Callable[[Events], None]) -> None:
    events = good()
    spoil(events)
    assert "its events are" in judged(events)


def test_a_run_that_somebody_cancelled_may_lack_results_but_have_no_wrong_ones() -> None:
    events = good()
    the_run_was_cancelled(events)
    events[7].task_ended.state = TASK_STATE_CANCELLED
    events[7].task_ended.result.ClearField("outputs")
    del events[8]
    assert judged(numbered(events), may_be_cancelled=True) == ""
    wrong_text(events)
    assert "gave text" in judged(events, may_be_cancelled=True)


def test_watchers_that_saw_different_things_are_found() -> None:
    other = good()
    other[4].attempt = 2
    assert "different events 5" in "".join(verdict.disagreements(good(), other))
    assert "10 events, another 9" in "".join(verdict.disagreements(good(), good()[:-1]))


def test_a_journal_that_tells_another_story_is_found() -> None:
    kept = Run(state=RUN_STATE_COMPLETED, last_sequence=10, answer=CASE.answer)
    kept.tasks.extend(TaskStatus(task=node.task(), result=ended(node.id).task_ended.result) for node in CASE.nodes)
    assert list(verdict.misread(good(), kept, kept)) == []
    for spoil in (
        lambda run: setattr(run, "state", RUN_STATE_FAILED),
        lambda run: setattr(run, "last_sequence", 9),
        lambda run: setattr(run, "answer", "another"),
        lambda run: run.tasks[0].result.outputs["text"].MergeFrom(Value(text="another")),
    ):
        spoilt = Run()
        spoilt.CopyFrom(kept)
        spoil(spoilt)
        assert list(verdict.misread(good(), kept, spoilt))


def test_the_same_seed_gives_the_same_cases_and_no_task_more_faults_than_it_can_bear() -> None:
    some = cases(5, 200)
    assert some == cases(5, 300)[:200]
    assert some != cases(6, 200)
    assert max(len(node.faults) for case in some for node in case.nodes) <= MOST_AGAIN + MOST_ELSEWHERE
    assert any(case.mode == RUN_MODE_RESULTS and not case.answer for case in some)
